"""Fully sharded data parallel, the first and the second, with replicas of shards, and checkpoints of sharded models."""
import shutil
import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as checkpoints
import torch.nn.functional as F
from torch import nn, optim
from torch.distributed.checkpoint.state_dict import (StateDictOptions, get_model_state_dict, get_state_dict,
                                                     set_model_state_dict, set_state_dict)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import (FullStateDictConfig, FullyShardedDataParallel, MixedPrecision, MixedPrecisionPolicy,
                                    ShardingStrategy, StateDictType, fully_shard)
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.distributed.tensor import DTensor

from tests.product.models import Attends, Own, Tied, float32, seeded
from tests.product.runner import Cases
from tests.product.runs import adam, run_alone, sgd, step_in_parts, step_plain
from tests.product.values import STEPS, batch, close, loss_of, network, part, weights

cases = Cases()


class Trained:
    """A sharded model and its optimiser, which is made after sharding."""

    def __init__(self, model, make_optimizer=sgd):
        self.alone, self.model = False, model
        self.optimizer = make_optimizer(model.parameters())

    def train(self, step=step_plain, steps=range(STEPS), dtype=torch.float64):
        for number in steps:
            step(self, part(batch(number, dtype)), number)
        return self


# ---- the first ----

def whole(model):
    """All weights, on every rank."""
    with FullyShardedDataParallel.summon_full_params(model):
        return {n.replace("_fsdp_wrapped_module.", ""): p.detach().clone() for n, p in model.named_parameters()}


def first(model, **options):
    return FullyShardedDataParallel(model, device_id=torch.device("cpu"), use_orig_params=True, **options)


FIRST = {
    "full shard": {}, "shard of gradients": {"sharding_strategy": ShardingStrategy.SHARD_GRAD_OP},
    "no shard": {"sharding_strategy": ShardingStrategy.NO_SHARD},
    "layers": {"auto_wrap_policy": ModuleWrapPolicy({nn.Linear})},
    "layers, gathered one at a time": {"auto_wrap_policy": ModuleWrapPolicy({nn.Linear}), "limit_all_gathers": True,
                                       "forward_prefetch": True},
}


@cases.case(options=FIRST)
def fsdp1(options):
    run = Trained(first(network(), **FIRST[options])).train()
    close(whole(run.model), weights(run_alone().module))


@cases.case()
def fsdp1_with_replicas_of_shards():
    mesh = init_device_mesh("cpu", (dist.get_world_size() // 2, 2), mesh_dim_names=("replicas", "shards"))
    run = Trained(first(network(), device_mesh=mesh, sharding_strategy=ShardingStrategy.HYBRID_SHARD)).train()
    close(whole(run.model), weights(run_alone().module))


@cases.case()
def fsdp1_clipping():
    def step(run, pair, number):
        run.optimizer.zero_grad()
        loss_of(run.model, pair).backward()
        if run.alone:
            nn.utils.clip_grad_norm_(run.model.parameters(), 0.3)
        else:
            run.model.clip_grad_norm_(0.3)
        run.optimizer.step()

    run = Trained(first(float32())).train(step, dtype=torch.float32)
    close(whole(run.model), weights(run_alone(float32, step=step, dtype=torch.float32).module))


@cases.case()
def fsdp1_accumulation():
    def step(run, pair, number):
        run.optimizer.zero_grad()
        loss_of(run.model, pair).backward()
        loss_of(run.model, (pair[0] + 1, pair[1])).backward()
        run.optimizer.step()

    def step_without(run, pair, number):
        run.optimizer.zero_grad()
        with run.model.no_sync():
            loss_of(run.model, pair).backward()
        loss_of(run.model, (pair[0] + 1, pair[1])).backward()
        run.optimizer.step()

    run = Trained(first(network())).train(step_without)
    close(whole(run.model), weights(run_alone(step=step).module))


def trains_in_bfloat16(sharded, weights_of):
    """Computes in bfloat16 and reduces in float32, as one process that casts by hand."""
    def forward(model, pair, rank):
        return F.mse_loss(model(pair[0]).float(), pair[1])

    def by_hand(model, pair, rank):
        halves = {n: p.to(torch.bfloat16) for n, p in model.named_parameters()}
        return F.mse_loss(torch.func.functional_call(model, halves, pair[0].to(torch.bfloat16)).float(), pair[1])

    def plain(parameters):
        return optim.SGD(parameters, lr=0.2)

    run = Trained(sharded, plain).train(step_in_parts(forward), dtype=torch.float32)
    single = run_alone(float32, plain, step=step_in_parts(by_hand), dtype=torch.float32)
    close(weights_of(run.model), weights(single.module))


@cases.case()
def fsdp1_mixed_precision():
    precision = MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    trains_in_bfloat16(first(float32(), mixed_precision=precision), whole)


@cases.case()
def fsdp1_whole_state():
    run, single = Trained(first(network()), adam).train(), run_alone(make_optimizer=adam)
    with FullyShardedDataParallel.state_dict_type(run.model, StateDictType.FULL_STATE_DICT,
                                                  FullStateDictConfig(rank0_only=False)):
        close(run.model.state_dict(), single.module.state_dict())


# ---- the second ----

def second(model, layers=False, **options):
    if layers:
        for layer in model:
            if any(True for _ in layer.parameters()):
                fully_shard(layer, **options)
    return fully_shard(model, **options)


def full(model):
    return {n: p.full_tensor().detach() if isinstance(p, DTensor) else p.detach() for n, p in model.named_parameters()}


SECOND = {"whole": {}, "layers": {"layers": True}, "layers kept": {"layers": True, "reshard_after_forward": False},
          "groups of two": {"layers": True, "reshard_after_forward": 2}}


@cases.case(options=SECOND, make=("sgd", "adam"))
def fsdp2(options, make):
    make = {"sgd": sgd, "adam": adam}[make]
    run = Trained(second(network(), **SECOND[options]), make).train()
    single = run_alone(make_optimizer=make)
    close(full(run.model), weights(single.module))
    moments = "exp_avg" if make is adam else "momentum_buffer"
    close([run.optimizer.state[p][moments].full_tensor() for p in run.model.parameters()],
          [single.optimizer.state[p][moments] for p in single.module.parameters()])


@cases.case()
def fsdp2_losses():
    model = second(network(), True)
    run, single = Trained(model), run_alone()
    losses = [step_plain(run, part(batch(number)), number) for number in range(STEPS)]
    close(losses, single.losses)


@cases.case(layers=(False, True))
def fsdp2_with_replicas_of_shards(layers):
    mesh = init_device_mesh("cpu", (dist.get_world_size() // 2, 2), mesh_dim_names=("replicas", "shards"))
    run = Trained(second(network(), layers, mesh=mesh)).train()
    close(full(run.model), weights(run_alone().module))


@cases.case()
def fsdp2_with_shards_of_one():
    """Only replicas: each shard is whole."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(), 1), mesh_dim_names=("replicas", "shards"))
    run = Trained(second(network(), mesh=mesh)).train()
    close(full(run.model), weights(run_alone().module))


@cases.case()
def fsdp2_clipping():
    def step(run, pair, number):
        run.optimizer.zero_grad()
        loss_of(run.model, pair).backward()
        nn.utils.clip_grad_norm_(run.model.parameters(), 0.3)
        run.optimizer.step()

    run = Trained(second(network(), True)).train(step)
    close(full(run.model), weights(run_alone(step=step).module))


@cases.case()
def fsdp2_accumulation():
    def step(run, pair, number):
        run.optimizer.zero_grad()
        if not run.alone:
            run.model.set_requires_gradient_sync(False)
        loss_of(run.model, pair).backward()
        if not run.alone:
            run.model.set_requires_gradient_sync(True)
        loss_of(run.model, (pair[0] + 1, pair[1])).backward()
        run.optimizer.step()

    run = Trained(second(network(), True)).train(step)
    close(full(run.model), weights(run_alone(step=step).module))


@cases.case()
def fsdp2_mixed_precision():
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    trains_in_bfloat16(second(float32(), mp_policy=policy), full)


MODELS = {"tied weights": seeded(Tied), "attention": seeded(Attends)}


@cases.case(model=MODELS)
def fsdp2_of(model):
    run = Trained(fully_shard(MODELS[model]())).train()
    close(full(run.model), weights(run_alone(MODELS[model]).module))


@cases.case()
def fsdp2_compiled():
    torch._dynamo.reset()
    model = Own(torch.float32)
    for layer in model.layers:
        layer.compile(backend="aot_eager")
    run = Trained(fully_shard(model)).train(dtype=torch.float32)
    close(full(run.model), weights(run_alone(lambda: Own(torch.float32), dtype=torch.float32).module))


# ---- checkpoints ----

def shared_directory():
    """A directory of rank 0's, whose name all get from the store, so that no collective of the group is needed."""
    store = dist.distributed_c10d._get_default_store()
    name = f"directory {shared_directory.count}"
    shared_directory.count += 1
    if dist.get_rank() == 0:
        store.set(name, tempfile.mkdtemp())
    return store.get(name).decode()


shared_directory.count = 0


def other():
    """The network with other weights."""
    model = network()
    with torch.no_grad():
        for p in model.parameters():
            p.fill_(0.5)
    return model


def states(run):
    model, optimizer = get_state_dict(run.model, run.optimizer)
    return {"model": model, "optimizer": optimizer}


@cases.case(how=("save", "async_save"))
def checkpoint_of_fsdp2(how):
    """Saved after two steps, loaded into a fresh model, which goes on to the weights of one process."""
    directory, run = shared_directory(), Trained(second(network(), True), adam).train(steps=range(2))
    if how == "save":
        checkpoints.save(states(run), checkpoint_id=directory)
    else:
        checkpoints.async_save(states(run), checkpoint_id=directory).result(60)
        dist.barrier()
    fresh = Trained(second(other(), True), adam)
    loaded = states(fresh)
    checkpoints.load(loaded, checkpoint_id=directory)
    set_state_dict(fresh.model, fresh.optimizer, model_state_dict=loaded["model"], optim_state_dict=loaded["optimizer"])
    fresh.train(steps=range(2, STEPS))
    dist.barrier()
    if dist.get_rank() == 0:
        shutil.rmtree(directory)
    close(full(fresh.model), weights(run_alone(make_optimizer=adam).module))


@cases.case()
def checkpoint_that_another_sharding_reads():
    """Saved from shards, read into a model of one process."""
    directory, run = shared_directory(), Trained(second(network())).train()
    checkpoints.save({"model": get_model_state_dict(run.model)}, checkpoint_id=directory)
    fresh = other()
    loaded = {"model": fresh.state_dict()}
    checkpoints.load(loaded, checkpoint_id=directory)
    fresh.load_state_dict(loaded["model"])
    dist.barrier()
    if dist.get_rank() == 0:
        shutil.rmtree(directory)
    close(weights(fresh), weights(run_alone().module))


@cases.case()
def whole_state_of_fsdp2():
    """Gathered from the shards, and given to shards by rank 0 alone."""
    run, single = Trained(second(network(), True)).train(), run_alone()
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    state = get_model_state_dict(run.model, options=options)
    if dist.get_rank() == 0:
        close(state, single.module.state_dict())
    fresh = second(other(), True)
    set_model_state_dict(
        fresh, state, options=StateDictOptions(full_state_dict=True, broadcast_from_rank0=True))
    close(full(fresh), weights(single.module))
