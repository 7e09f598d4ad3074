"""DistributedDataParallel, ZeroRedundancyOptimizer, Join and model averaging over the group."""
import contextlib
import copy

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn, optim
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.algorithms.join import Join
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.distributed.optim import ZeroRedundancyOptimizer

from tests.product.models import (Attends, Branches, Convolutions, Mixed, Odd, Own, Recomputed, Tied, Waves, compiled,
                                  float32, partly_frozen, seeded)
from tests.product.replicas import replicated
from tests.product.runner import Cases
from tests.product.runs import (CLIPPINGS, adam, compared, run_rank, scaler, sgd, step_clipped, step_in_parts,
                                step_plain, step_scaled)
from tests.product.values import STEPS, average, batch, close, loss_of, network, part, parts, state_of, weights

cases = Cases()
TINY = 0.0005  # MB: several buckets of the small network

OPTIONS = {"plain": {}, "several buckets": {"bucket_cap_mb": TINY}, "static graph": {"static_graph": True},
           "gradients in the bucket": {"gradient_as_bucket_view": True}, "no buffers": {"broadcast_buffers": False},
           "search for unused": {"find_unused_parameters": True}}


@cases.case(options=OPTIONS)
def ddp(options):
    compared(replicated(**OPTIONS[options]))


MODELS = {"tied weights": seeded(Tied), "frozen parameters": partly_frozen, "attention": seeded(Attends),
          "odd parameters": seeded(Odd), "batch norm in eval": lambda: seeded(Convolutions)().eval(),
          "channels last": lambda: seeded(Convolutions)().eval().to(memory_format=torch.channels_last)}


@cases.case(model=MODELS)
def ddp_of(model):
    compared(replicated(), MODELS[model])


@cases.case(half=("bfloat16", "float16"))
def ddp_in(half):
    dtype = getattr(torch, half)

    def forward(model, pair, rank):
        return F.mse_loss(model(pair[0]).float(), pair[1].float())

    compared(replicated(), lambda: network(dtype), lambda p: optim.SGD(p, lr=0.5), step=step_in_parts(forward), steps=2,
             dtype=dtype, tolerance=2 * torch.finfo(dtype).eps)


@cases.case()
def ddp_of_several_types():
    def make():
        torch.manual_seed(3)
        return Mixed()

    def forward(model, pair, rank):
        return F.mse_loss(model(pair[0]), pair[1].float())

    compared(replicated(), make, lambda p: optim.SGD(p, lr=0.5), step=step_in_parts(forward), steps=2, tolerance=2**-7)


@cases.case()
def ddp_of_complex_parameters():
    def make():
        torch.manual_seed(3)
        return Waves(torch.complex128)

    compared(replicated(), make, lambda p: optim.SGD(p, lr=0.1, momentum=0.9))


@cases.case(where=("all ranks", "some ranks"))
def ddp_unused_on(where):
    def forward(model, pair, rank):
        return F.mse_loss(model(pair[0], where == "some ranks" and rank == dist.get_world_size() - 1), pair[1])

    compared(replicated(find_unused_parameters=True), seeded(Branches), lambda p: optim.SGD(p, lr=0.2),
             step=step_in_parts(forward))


@cases.case()
def ddp_accumulation_with_no_sync():
    def step(run, pair, number):
        run.optimizer.zero_grad()
        pieces = list(zip(*(t.chunk(2) for t in pair)))
        for piece in pieces:
            apart = piece is not pieces[-1] and not run.alone
            with run.model.no_sync() if apart else contextlib.nullcontext():
                (loss_of(run.model, piece) / 2).backward()
        run.optimizer.step()

    compared(replicated(), step=step)


@cases.case(clipping=CLIPPINGS)
def ddp_clipping(clipping):
    compared(replicated(), step=step_clipped(CLIPPINGS[clipping], False))


@cases.case(overflows=(-1, 1))
def ddp_grad_scaler(overflows):
    compared(replicated(), float32, step=step_scaled(overflows < 0, False, overflows), dtype=torch.float32,
             keep_after=scaler)


@cases.case()
def ddp_autocast():
    def forward(model, pair, rank):
        with torch.autocast("cpu", torch.bfloat16):
            return loss_of(model, pair)

    compared(replicated(), float32, step=step_in_parts(forward), dtype=torch.float32)


@cases.case(reentrant=(True, False))
def ddp_checkpointing(reentrant):
    compared(replicated(static_graph=reentrant), seeded(lambda: Recomputed(reentrant)))


@cases.case()
def ddp_of_a_compiled_module():
    compared(replicated(), compiled("aot_eager"), dtype=torch.float32)


def compiled_step(run, pair, number):
    if number == 0:
        torch._dynamo.reset()
        run.forward = torch.compile(run.model, backend="aot_eager")
    run.optimizer.zero_grad()
    F.mse_loss(run.forward(pair[0]), pair[1]).backward()
    run.optimizer.step()


@cases.case()
def compiled_ddp():
    compared(replicated(), lambda: Own(torch.float32), step=compiled_step, dtype=torch.float32)


@cases.case()
def compiled_ddp_and_its_reducer():
    """Compiled autograd, and the collectives of backward in the graph."""
    def step(run, pair, number):
        with torch._dynamo.config.patch(optimize_ddp="python_reducer", compiled_autograd=True):
            compiled_step(run, pair, number)

    compared(replicated(), lambda: Own(torch.float32), step=step, dtype=torch.float32)


@cases.case()
def ddp_buffers_of_rank_0():
    """DDP brings the running means of the first rank before every forward pass."""
    def forward(model, pair, rank):
        if rank == 0 or isinstance(model, nn.parallel.DistributedDataParallel):
            return loss_of(model, pair)
        return F.mse_loss(torch.func.functional_call(model, copy.deepcopy(before), pair[0]), pair[1])

    def step(run, pair, number):
        before.update(copy.deepcopy(dict(run.module.named_buffers())))
        step_in_parts(forward)(run, pair, number)

    before = {}
    compared(replicated(), seeded(Convolutions), step=step)


@cases.case()
def ddp_brings_the_weights_of_rank_0():
    def distribute(run):
        with torch.no_grad():
            for p in run.module.parameters():
                p.add_(dist.get_rank())
        replicated()(run)

    compared(distribute)


@cases.case(hook=("allreduce_hook", "fp16_compress_hook"))
def ddp_with_a_hook_of_torch(hook):
    def distribute(run):
        replicated()(run)
        run.model.register_comm_hook(None, getattr(default_hooks, hook))

    tolerance = torch.finfo(torch.float16).eps if "fp16" in hook else 1e-6
    compared(distribute, float32, lambda p: optim.SGD(p, lr=0.2), dtype=torch.float32, steps=1, tolerance=tolerance)


@cases.case()
def ddp_two_models():
    def trained(alone):
        made = [network(), seeded(Tied)()]
        models = made if alone else [run_rank(replicated(), lambda m=m: m, steps=0).model for m in made]
        optimisers = [sgd(m.parameters()) for m in made]
        for step in range(STEPS):
            for net, one in zip(models, optimisers):
                one.zero_grad()
                loss_of(net, batch(step) if alone else part(batch(step))).backward()
                one.step()
        return [weights(m) for m in made]

    single = trained(True)
    close(trained(False), single)


@cases.case()
def ddp_over_a_group_of_its_own():
    group = dist.new_group(list(range(dist.get_world_size())))
    compared(replicated(process_group=group))


# ---- ranks that run out of data ----

def uneven(step):
    """The ranks that make this step: rank r makes one more than the one before."""
    return [r for r in range(dist.get_world_size()) if step < 2 + r]


@cases.case(divisor=("all ranks", "ranks with data"))
def join_of_ddp(divisor):
    """Averages are divided by the number of all ranks, or of those that still have data."""
    everybody = divisor == "all ranks"
    single = network()
    plain = optim.SGD(single.parameters(), lr=0.2)
    for step in range(1 + dist.get_world_size()):
        plain.zero_grad()
        for rank in uneven(step):
            count = dist.get_world_size() if everybody else len(uneven(step))
            (loss_of(single, parts(batch(step))[rank]) / count).backward()
        plain.step()
    run = run_rank(replicated(), make_optimizer=lambda p: optim.SGD(p, lr=0.2), steps=0)
    with Join([run.model], divide_by_initial_world_size=everybody):
        for step in range(2 + dist.get_rank()):
            step_plain(run, part(batch(step)), step)
    close(weights(run.module), weights(single))


# ---- sharded optimisers ----

def zero(kind, view=False, **settings):
    def distribute(run):
        replicated()(run)
        run.optimizer = ZeroRedundancyOptimizer(run.module.parameters(), kind, parameters_as_bucket_view=view,
                                                **settings)
    return distribute


ZEROS = {"Adam": (optim.Adam, {"lr": 0.02}), "SGD": (optim.SGD, {"lr": 0.2, "momentum": 0.9}),
         "AdamW": (optim.AdamW, {"lr": 0.02, "amsgrad": True})}


@cases.case(kind=ZEROS, view=(False, True))
def zero_redundancy(kind, view):
    optimiser, settings = ZEROS[kind]
    compared(zero(optimiser, view, **settings), make_optimizer=lambda p: optimiser(p, **settings), state=False)


@cases.case()
def zero_redundancy_consolidated():
    """Rank 0 gets the whole state."""
    run, single = compared(zero(optim.Adam, lr=0.02), make_optimizer=adam, state=False)
    run.optimizer.consolidate_state_dict(0)
    if dist.get_rank() == 0:
        close(state_of(run.optimizer), state_of(single.optimizer))


@cases.case(period=(1, 2))
def model_averaging(period):
    """Each rank trains alone; the weights are averaged at every n-th step."""
    copies = [network() for _ in range(dist.get_world_size())]
    plain = [sgd(c.parameters()) for c in copies]
    model = network()
    mine, averager = sgd(model.parameters()), PeriodicModelAverager(period=period)
    for step in range(2 * period):
        mine.zero_grad()
        loss_of(model, part(batch(step))).backward()
        mine.step()
        averager.average_parameters(model.parameters())
        for rank, (net, one) in enumerate(zip(copies, plain)):
            one.zero_grad()
            loss_of(net, part(batch(step), rank)).backward()
            one.step()
        if step % period == 0:
            average(copies)
    close(weights(model), weights(copies[dist.get_rank()]))
