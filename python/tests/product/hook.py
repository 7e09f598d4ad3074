"""DistributedDataParallel with gradwire's communication hook, over the group of the runner's argument."""
import contextlib
import copy

import torch
import torch.nn.functional as F
from torch import nn, optim
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.optim import lr_scheduler

import gradwire.torch as gw
from tests.product.models import (Attends, Branches, Convolutions, Mixed, Odd, Own, Recomputed, Recurrent, Table, Tied,
                                  Twice, compiled, float32, partly_frozen, seeded)
from tests.product.replicas import hooked
from tests.product.runner import Cases
from tests.product.runs import (CLIPPINGS, adam, close_to_rounded, compared, run_rank, scaler, sgd, step_clipped,
                                step_in_parts, step_plain, step_scaled, step_scheduled)
from tests.product.values import HALF, STEPS, batch, close, loss_of, network, part, parts, weights

cases = Cases()
LINES = (None, "schedule=wfbp", "schedule=p3 arch=ring")
TWO = LINES[:2]
TINY = 0.0005  # MB: several buckets of the small network


# ---- strategies and codecs ----

@cases.case(line=("arch=auto", "arch=ring", "arch=halving", "arch=tree", "arch=direct", "arch=hierarchical", "arch=ps",
                  "schedule=fifo", "schedule=wfbp:fuse=2000", "schedule=mgwfbp", "schedule=p3",
                  "schedule=bytescheduler", "schedule=tictac", "schedule=dear"))
def strategy(line):
    compared(hooked(line, bucket_cap_mb=TINY))


@cases.case(size=(TINY, 0.001, 25))
def buckets_of(size):
    compared(hooked(None, bucket_cap_mb=size))


@cases.case(codec=HALF, schedule=("wfbp", "p3"))
def codec(codec, schedule):
    run = run_rank(hooked(f"compress={codec} schedule={schedule}"), float32, lambda p: optim.SGD(p, lr=1.0), steps=1,
                   dtype=torch.float32)
    close_to_rounded(run.module, HALF[codec])


@cases.case(line=("compress=topk:ratio=1", "compress=randomk:ratio=1"))
def codec_that_leaves_nothing_out(line):
    compared(hooked(line), float32, dtype=torch.float32)


OPTIMISERS = {
    "SGD": sgd, "Adam": adam, "AdamW fused": lambda p: optim.AdamW(p, lr=0.02, fused=True),
    "RMSprop": lambda p: optim.RMSprop(p, lr=0.01), "Adagrad": lambda p: optim.Adagrad(p, lr=0.1),
}


@cases.case(line=TWO, optimiser=OPTIMISERS)
def optimiser(line, optimiser):
    compared(hooked(line), make_optimizer=OPTIMISERS[optimiser], tolerance=1e-8)


@cases.case(line=TWO)
def closure_of_lbfgs(line):
    """The optimiser sees averages each time it evaluates."""
    def step(run, pair, number):
        def evaluate():
            run.optimizer.zero_grad()
            loss = loss_of(run.model, pair)
            loss.backward()
            return loss.detach() * 0  # LBFGS stops by the loss: all ranks need the same
        run.optimizer.step(evaluate)

    compared(hooked(line), make_optimizer=lambda p: optim.LBFGS(p, lr=0.1, max_iter=2), step=step, state=False,
             tolerance=1e-8, steps=2)


# ---- options of DDP ----

@cases.case(line=LINES)
def static_graph(line):
    compared(hooked(line, static_graph=True))


@cases.case(line=LINES)
def gradients_in_the_bucket(line):
    compared(hooked(line, gradient_as_bucket_view=True, bucket_cap_mb=TINY))


@cases.case(line=TWO, to_none=(True, False))
def zero_grad(line, to_none):
    def step(run, pair, number):
        run.optimizer.zero_grad(set_to_none=to_none)
        loss_of(run.model, pair).backward()
        run.optimizer.step()

    compared(hooked(line, gradient_as_bucket_view=not to_none), step=step)


@cases.case(line=TWO)
def unused_on_all_ranks(line):
    def forward(model, pair, rank):
        return F.mse_loss(model(pair[0], False), pair[1])

    compared(hooked(line, find_unused_parameters=True), seeded(Branches), lambda p: optim.SGD(p, lr=0.2),
             step=step_in_parts(forward))


@cases.case(line=TWO)
def unused_on_some_ranks(line):
    def forward(model, pair, rank):
        return F.mse_loss(model(pair[0], rank == gw.size() - 1), pair[1])

    compared(hooked(line, find_unused_parameters=True), seeded(Branches), lambda p: optim.SGD(p, lr=0.2),
             step=step_in_parts(forward))


@cases.case(line=LINES)
def accumulation_with_no_sync(line):
    def step(run, pair, number):
        run.optimizer.zero_grad()
        pieces = list(zip(*(t.chunk(2) for t in pair)))
        for piece in pieces:
            apart = piece is not pieces[-1] and not run.alone
            with run.model.no_sync() if apart else contextlib.nullcontext():
                (loss_of(run.model, piece) / 2).backward()
        run.optimizer.step()

    compared(hooked(line), step=step)


@cases.case(line=TWO)
def buffers_of_rank_0(line):
    """DDP brings the running means of the first rank before every forward pass."""
    def forward(model, pair, rank):
        if rank == 0 or isinstance(model, nn.parallel.DistributedDataParallel):
            return loss_of(model, pair)
        apart = copy.deepcopy(before)
        return F.mse_loss(torch.func.functional_call(model, apart, pair[0]), pair[1])

    def step(run, pair, number):
        before.update(copy.deepcopy(dict(run.module.named_buffers())))
        step_in_parts(forward)(run, pair, number)

    before = {}
    compared(hooked(line), seeded(Convolutions), step=step)


@cases.case()
def join_of_ranks_that_run_out_of_data():
    """Rank r has a step more than the one before; averages are divided by the number of ranks."""
    from torch.distributed.algorithms.join import Join

    single = network()
    plain = optim.SGD(single.parameters(), lr=0.2)
    for step in range(1 + gw.size()):
        plain.zero_grad()
        for rank, one in enumerate(parts(batch(step))):
            if step < 2 + rank:
                (loss_of(single, one) / gw.size()).backward()
        plain.step()
    run = run_rank(hooked(None), make_optimizer=lambda p: optim.SGD(p, lr=0.2), steps=0)
    with Join([run.model], divide_by_initial_world_size=True):
        for step in range(2 + gw.rank()):
            step_plain(run, part(batch(step)), step)
    close(weights(run.module), weights(single))


# ---- mixed precision, clipping, schedulers ----

@cases.case(line=TWO, half=("bfloat16", "float16"))
def autocast(line, half):
    """One process divides by the number of ranks before float16 rounds, among subnormal numbers."""
    def forward(model, pair, rank):
        with torch.autocast("cpu", getattr(torch, half)):
            return loss_of(model, pair)

    compared(hooked(line), float32, step=step_in_parts(forward), dtype=torch.float32, tolerance=1e-5)


@cases.case(line=TWO, overflows=(-1, 1))
def grad_scaler(line, overflows):
    run, single = compared(hooked(line), float32, step=step_scaled(overflows < 0, False, overflows),
                           dtype=torch.float32, keep_after=scaler)
    close(run.kept.get_scale(), single.kept.get_scale())


@cases.case(line=TWO, clipping=CLIPPINGS)
def clipping(line, clipping):
    compared(hooked(line, bucket_cap_mb=TINY), step=step_clipped(CLIPPINGS[clipping], False))


@cases.case(line=TWO)
def scheduler_of_the_rate(line):
    compared(hooked(line), step=step_scheduled, keep_before=lambda o: lr_scheduler.StepLR(o, 1, 0.5))


@cases.case(line=TWO)
def gradients_that_a_logger_sees(line):
    def step(run, pair, number):
        run.optimizer.zero_grad()
        loss_of(run.model, pair).backward()
        seen[run.alone].append({n: p.grad.clone() for n, p in run.module.named_parameters()})
        run.optimizer.step()

    seen = {True: [], False: []}
    compared(hooked(line), step=step)
    close(seen[False], seen[True])


# ---- torch.compile and checkpointing ----

@cases.case(line=TWO, reentrant=(True, False))
def activation_checkpointing(line, reentrant):
    """DDP allows the reentrant form with a static graph."""
    compared(hooked(line, static_graph=reentrant), seeded(lambda: Recomputed(reentrant)))


@cases.case(line=TWO)
def compiled_module_in_ddp(line):
    compared(hooked(line), compiled("aot_eager"), dtype=torch.float32)


def compiled_step(backend):
    """DDP itself is compiled; dynamo cuts the graph at its buckets."""
    def step(run, pair, number):
        if number == 0:
            torch._dynamo.reset()
            run.forward = torch.compile(run.model, backend=backend)
        run.optimizer.zero_grad()
        F.mse_loss(run.forward(pair[0]), pair[1]).backward()
        run.optimizer.step()
    return step


@cases.case(line=TWO)
def compiled_ddp(line):
    compared(hooked(line), lambda: Own(torch.float32), step=compiled_step("aot_eager"), dtype=torch.float32)


@cases.case()
def compiled_ddp_by_inductor():
    compared(hooked(None), lambda: Own(torch.float32), step=compiled_step("inductor"), dtype=torch.float32)


# ---- models ----

MODELS = {"tied weights": seeded(Tied), "a module used twice": seeded(Twice), "frozen parameters": partly_frozen,
          "recurrent": seeded(Recurrent), "attention": seeded(Attends), "odd parameters": seeded(Odd),
          "an embedding": seeded(lambda: Table(False)), "batch norm in eval": lambda: seeded(Convolutions)().eval(),
          "channels last": lambda: seeded(Convolutions)().eval().to(memory_format=torch.channels_last)}


@cases.case(line=TWO, model=MODELS)
def model(line, model):
    compared(hooked(line), MODELS[model])


@cases.case(line=TWO, half=("bfloat16", "float16"))
def parameters_in(line, half):
    dtype = getattr(torch, half)

    def forward(model, pair, rank):
        return F.mse_loss(model(pair[0]).float(), pair[1].float())

    compared(hooked(line), lambda: network(dtype), lambda p: optim.SGD(p, lr=0.5), step=step_in_parts(forward), steps=2,
             dtype=dtype, tolerance=2 * torch.finfo(dtype).eps)


@cases.case(line=TWO)
def parameters_of_several_types(line):
    def make():
        torch.manual_seed(3)
        return Mixed()

    def forward(model, pair, rank):
        return F.mse_loss(model(pair[0]), pair[1].float())

    compared(hooked(line), make, lambda p: optim.SGD(p, lr=0.5), step=step_in_parts(forward), steps=2, tolerance=2**-7)


@cases.case(line=TWO)
def two_models(line):
    """Each has a DDP and a hook of its own, and they take turns."""
    def trained(alone):
        made = [network(), seeded(Tied)()]
        models = made
        if not alone:
            runs = [run_rank(hooked(line), lambda m=m: m, steps=0) for m in made]
            models = [r.model for r in runs]
        optimisers = [sgd(m.parameters()) for m in made]
        for step in range(STEPS):
            for net, one in zip(models, optimisers):
                one.zero_grad()
                loss_of(net, batch(step) if alone else part(batch(step))).backward()
                one.step()
        return [weights(m) for m in made]

    single = trained(True)
    close(trained(False), single)


@cases.case(line=TWO)
def weights_of_rank_0(line):
    """Ranks begin with other weights; DDP brings those of the first."""
    def make():
        model = network()
        with torch.no_grad():
            for p in model.parameters():
                p.add_(gw.rank() if ranks else 0)
        return model

    ranks = False
    single = run_rank(lambda run: None, make, steps=0)
    ranks = True
    run = run_rank(hooked(line), make, steps=0)
    for step in range(STEPS):
        step_plain(single, batch(step), step)
        step_plain(run, part(batch(step)), step)
    close(weights(run.module), weights(single.module))


@cases.case(line=TWO)
def sharded_optimiser(line):
    """ZeroRedundancyOptimizer beside the hook."""
    def distribute(run):
        hooked(line)(run)
        run.optimizer = ZeroRedundancyOptimizer(run.module.parameters(), optim.Adam, lr=0.02)

    compared(distribute, make_optimizer=adam, state=False)
