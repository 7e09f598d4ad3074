"""The step time of `gradwire trace summary` is that of the wall clock, under every schedule and every way to train; what
a rank waits for is in its steps. STEPS chooses how many steps are compared."""
import functools
import json
import os
import pathlib
import subprocess
import tempfile
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import cases
import gradwire.torch as gw
from gradwire._library import library_path
from gradwire.torch import world as worlds

STEPS = int(os.environ.get("STEPS", 8))
WIDTH, DATA_S, LATE_S = 256, 0.005, 0.015
TRIES = 5  # a busy machine may stop a rank between two readings of the clock: each try takes twice as many steps
SCHEDULES = ("fifo", "wfbp", "mgwfbp", "p3", "bytescheduler", "tictac", "dear")


class Slow(torch.nn.Module):
    """The last rank computes longer than the others, which wait for it."""

    def forward(self, x):
        time.sleep(LATE_S if gw.rank() == gw.size() - 1 else 0)
        return x + 0


def network():
    torch.manual_seed(3)
    return torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), Slow(), torch.nn.Linear(WIDTH, 8))


def wrapped(model, strategy):
    return gw.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.01), model.named_parameters(),
                                   strategy=strategy)


def train(model, optimizer, steps, synchronize=False):
    """Returns the mean time in ms from one step to the next. The first one begins nowhere."""
    ended = []
    for step in range(steps + 1):
        time.sleep(DATA_S)  # data are loaded
        optimizer.zero_grad()
        model(torch.full((4, WIDTH), 0.1 * (step % STEPS))).square().mean().backward()
        if synchronize:
            optimizer.synchronize()
            with optimizer.skip_synchronize():
                optimizer.step()
        else:
            optimizer.step()
        ended.append(time.monotonic_ns())
    return (ended[-1] - ended[0]) / steps / 1e6


def recorded(run):
    """What the summary says of run(), and what the clock said on each rank."""
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(gw.broadcast_object(directory), "run.gwt")
        gw.start_timeline(capture=path)
        wall = run()
        gw.stop_timeline()
        walls = gw.allgather_object(wall)  # all have ended theirs
        program = pathlib.Path(library_path).resolve().parent / "gradwire"
        text = subprocess.run([program, "trace", "summary", "--json", path], check=True, capture_output=True).stdout
        gw.barrier()
    return json.loads(text), walls


def compare(make, strategy, synchronize=False):
    """make: returns a model and an optimiser."""
    for attempt in range(TRIES):
        model, optimizer = make()
        said, walls = recorded(lambda: train(model, optimizer, STEPS << attempt, synchronize))
        if hasattr(optimizer, "detach"):
            optimizer.detach()
        told = [rank["step_ms"] for rank in said["rank"]]
        assert strategy in said["strategy"], said["strategy"]
        assert said["hosts"] == gw.size() // gw.local_size(), said
        median = said["median_step"]
        parts = [median["mean"][part] for part in ("compute_ms", "waiting_ms", "other_ms")]
        assert abs(sum(parts) - median["step_ms"]) < 1e-5, median
        near = all(abs(a / b - 1) < 0.02 for a, b in zip(told, walls))
        late = LATE_S * 1e3 * (gw.size() - 1) / gw.size()  # the others' waiting, in the mean over the ranks
        if gw.broadcast_object(near and median["mean"]["waiting_ms"] > late / 2):
            return
    raise AssertionError(f"{strategy}: the summary has {told} ms, the clock {walls}; the median step is {median}")


def optimizer_of(strategy):
    model = network()
    return model, wrapped(model, strategy)


def test_every_schedule():
    for schedule in SCHEDULES:
        compare(functools.partial(optimizer_of, f"schedule={schedule}"), f"schedule={schedule}")


def test_synchronize_as_in_horovod():
    compare(functools.partial(optimizer_of, "schedule=wfbp"), "schedule=wfbp", synchronize=True)


def test_several_optimizers():
    """The first one's steps count. When it makes none any more, those of the other do."""
    models = [network(), network()]
    optimizers = [wrapped(model, f"schedule={schedule}") for model, schedule in zip(models, ("wfbp", "dear"))]

    def run():
        for which in [0, 1, 0, 1, 0, 1, 1, 1]:
            optimizers[which].zero_grad()
            models[which](torch.ones(4, WIDTH)).sum().backward()
            optimizers[which].step()

    said, _ = recorded(run)
    for optimizer in optimizers:
        optimizer.detach()
    assert said["steps"] == 5 and "schedule=dear" in said["strategy"], said


def group():
    """Of gradwire itself, which finds the ranks of other hosts too."""
    here = os.environ.get("MASTER_ADDR", "127.0.0.1")
    server = dist.TCPStore(here, 0, is_master=True, wait_for_workers=False) if gw.rank() == 0 else None
    port = gw.broadcast_object(server.port if server else None, 0)
    dist.init_process_group("gradwire", store=server or dist.TCPStore(here, port), rank=gw.rank(),
                            world_size=gw.size())


def forget_hooks():
    for hook in worlds.world().hooks:
        hook.close()
    worlds.world().hooks.clear()


def hooked(state_of):
    forget_hooks()
    model = network()
    parallel = DistributedDataParallel(model)
    parallel.register_comm_hook(state_of(parallel), gw.ddp_hook)
    return parallel, torch.optim.SGD(model.parameters(), lr=0.01)


def test_hooks_of_ddp():
    group()
    compare(functools.partial(hooked, lambda parallel: None), "schedule=")
    compare(functools.partial(hooked, lambda parallel: gw.HookState("schedule=p3", parallel.named_parameters())),
            "schedule=p3")
    forget_hooks()
    dist.destroy_process_group()


cases.run(globals())
