"""Compiled models train to the parameters of one process that is not compiled, in one graph."""
import contextlib
import gc
import os
import unittest.mock
import warnings

import torch
import torch.distributed as dist
from torch._dynamo.utils import counters
from torch.nn.parallel import DistributedDataParallel

import cases
import gradwire.torch as gw

STEPS, BATCH = 5, 4
BACKENDS = os.environ.get("BACKENDS", "aot_eager inductor").split()
SCHEDULES = "schedule=wfbp", "schedule=dear", "schedule=p3"


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.wide, self.narrow = torch.nn.LayerNorm(8), torch.nn.Linear(8, 16), torch.nn.Linear(16, 8)

    def forward(self, x):
        return x + self.narrow(torch.tanh(self.wide(self.norm(x))))


class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.blocks = torch.nn.Linear(3, 8), torch.nn.ModuleList(Block() for _ in range(3))
        self.scale = torch.nn.Parameter(torch.ones(8))

    def forward(self, x):
        x = self.first(x)
        for block in self.blocks:
            x = block(x)
        return (x * self.scale).square().mean()


def made():
    torch.manual_seed(4)
    return Network().double()


def adam(model):
    return torch.optim.Adam(model.parameters(), lr=0.02)


def batch(step):
    return torch.randn(BATCH * gw.size(), 3, generator=torch.Generator().manual_seed(step)).double()


def part(step):
    return batch(step)[gw.rank() * BATCH:(gw.rank() + 1) * BATCH]


def train(forward, optimizer, steps=range(STEPS), data=part, between=None, backward=torch.Tensor.backward):
    for step in steps:
        optimizer.zero_grad()
        backward(forward(data(step)))
        if between is not None:
            between()
        optimizer.step()


def reference(clips=False):
    model = made()
    train(model, adam(model), data=batch, between=clip(model) if clips else None)
    return model


def clip(model):
    return lambda: torch.nn.utils.clip_grad_norm_(model.parameters(), 0.05)


def equal(a, b):
    for (name, x), y in zip(a.named_parameters(), b.parameters()):
        torch.testing.assert_close(x, y, rtol=1e-7, atol=1e-9, msg=lambda m, name=name: f"{name}: {m}")


def by_itself(model, backend):
    return torch.compile(model, backend=backend)


def in_place(model, backend):
    model.compile(backend=backend)
    return model


def in_a_function(model, backend):
    return torch.compile(lambda x: model(x) * 1, backend=backend)


def block_by_block(model, backend):
    for block in model.blocks:
        block.compile(backend=backend)
    return model


WAYS = by_itself, in_place, in_a_function, block_by_block


@contextlib.contextmanager
def graphs(expected, breaks=0):
    """There are as many graphs as expected (None: any number), and breaks between them; nothing is warned of."""
    torch._dynamo.reset()
    counters.clear()
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="Using `torch.compile")
        yield
    assert sum(counters["graph_break"].values()) == breaks, dict(counters["graph_break"])
    assert expected is None or counters["stats"]["unique_graphs"] == expected, dict(counters["stats"])


def wrapped(model, line):
    return gw.DistributedOptimizer(adam(model), model.named_parameters(), strategy=line)


def test_models_under_an_optimiser():
    single = reference()
    for backend in BACKENDS:
        for line in SCHEDULES:
            for compiled in WAYS if backend == "aot_eager" else WAYS[:1]:
                model = made()
                with graphs(1):
                    optimizer = wrapped(model, line)
                    train(compiled(model, backend), optimizer)
                optimizer.flush()
                equal(single, model)
                optimizer.detach()


def test_clipping():
    single = reference(clips=True)
    for backend in BACKENDS:
        model = made()
        with graphs(1):
            optimizer = wrapped(model, "schedule=wfbp")
            train(by_itself(model, backend), optimizer, between=clip(model))
        equal(single, model)
        optimizer.detach()


def test_models_compiled_midway():
    """Modules that have waited for their parameters are in a graph from then on."""
    single = reference()
    for line in SCHEDULES:
        for compiled in WAYS:
            model = made()
            with graphs(1):
                optimizer = wrapped(model, line)
                train(model, optimizer, range(2))
                train(compiled(model, "aot_eager"), optimizer, range(2, STEPS))
            optimizer.flush()
            equal(single, model)
            optimizer.detach()


def test_models_compiled_and_called_before():
    single = reference()
    for line in SCHEDULES:
        for compiled in WAYS:
            model = made()
            with graphs(1):
                with torch.no_grad():
                    model(part(0))
                optimizer = wrapped(model, line)
                with torch.no_grad():
                    model(part(0))
                forward = compiled(model, "aot_eager")
                train(forward, optimizer)
            optimizer.flush()
            equal(single, model)
            optimizer.detach()


def group(backend):
    """Torch's store of the previous group must be closed first, on all ranks: another rank might connect to it."""
    gc.collect()
    gw.barrier()
    dist.init_process_group(backend, rank=gw.rank(), world_size=gw.size())


@unittest.mock.patch.object(dist, "_DEFAULT_FIRST_BUCKET_BYTES", 1000)
def trained_by_ddp(backend, state=None, hook=None):
    """In several buckets, each with a graph of its own."""
    model = DistributedDataParallel(made(), bucket_cap_mb=0.002)
    if hook is not None:
        model.register_comm_hook(state(model), hook)
    train(torch.compile(model, backend=backend), adam(model), between=clip(model))
    return model.module


def breaks_of_ddp():
    """Torch's own."""
    torch._dynamo.reset()
    counters.clear()
    trained_by_ddp("aot_eager")
    return sum(counters["graph_break"].values())


def test_the_hook_of_ddp():
    single = reference(clips=True)
    group("gloo")
    breaks = breaks_of_ddp()
    for backend in BACKENDS:
        for state in (lambda model: None, lambda model: gw.HookState("schedule=wfbp", model.named_parameters())):
            with graphs(None, breaks):
                equal(single, trained_by_ddp(backend, state, gw.ddp_hook))
    dist.destroy_process_group()


def test_the_process_group():
    single = reference(clips=True)
    group("gloo")
    breaks = breaks_of_ddp()
    dist.destroy_process_group()
    group("gradwire")
    for backend in BACKENDS:
        with graphs(None, breaks):
            equal(single, trained_by_ddp(backend))
    dist.destroy_process_group()


@contextlib.contextmanager
def compiled_autograd(backend, **options):
    """Yields a function that compiles and runs the backward pass of a loss; options: of torch.compile."""
    def compiler(graph):
        return torch.compile(graph, backend=backend, **options)

    def backward(loss):
        with torch._dynamo.compiled_autograd._enable(compiler):
            loss.backward()

    torch._dynamo.reset()
    counters.clear()
    yield backward
    assert counters["compiled_autograd"]["captures"]


def test_compiled_autograd_under_an_optimiser():
    for backend in BACKENDS:
        for line in SCHEDULES:
            model, clips = made(), line == "schedule=wfbp"
            optimizer, single = wrapped(model, line), reference(clips)
            with compiled_autograd(backend) as backward:
                train(by_itself(model, backend), optimizer, between=clip(model) if clips else None, backward=backward)
            optimizer.flush()
            equal(single, model)
            optimizer.detach()


@torch._dynamo.config.patch(optimize_ddp="python_reducer")
def test_the_python_reducer_of_ddp():
    single = reference(clips=True)
    group("gloo")
    for backend in BACKENDS:
        with compiled_autograd(backend, fullgraph=True) as backward:
            model = DistributedDataParallel(made())
            model.register_comm_hook(None, gw.ddp_hook)
            train(torch.compile(model, backend=backend, fullgraph=True), adam(model), between=clip(model),
                  backward=backward)
        assert not counters["graph_break"], dict(counters["graph_break"])
        equal(single, model.module)
    with compiled_autograd("aot_eager") as backward:
        model = DistributedDataParallel(made())
        model.register_comm_hook(gw.HookState("compress=topk", model.named_parameters()), gw.ddp_hook)
        loss = torch.compile(model, backend="aot_eager")(part(0))
        try:
            backward(loss)
            raise AssertionError("it was not refused")
        except Exception as error:
            assert "a HookState gets no buckets" in str(error), error
    dist.destroy_process_group()


cases.run(globals())
