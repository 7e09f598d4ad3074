#!/usr/bin/env python3
"""The cost of the binding itself: microseconds that a step takes longer with DistributedOptimizer than with the
optimiser alone, in one process (nothing is sent), by the number of tensors. The two take turns, a few steps each. The
overhead is the difference of the medians, and that of the minima, which noise does not affect.

usage: python_overhead.py [STRATEGY]..."""
import pathlib
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "python"))
import torch  # noqa: E402

import gradwire.torch as gw  # noqa: E402

ROUNDS, STEPS, TENSORS = 100, 4, (2, 40, 160)
PER_STEP_US, PER_TENSOR_US = 50, 10


class Chain(torch.nn.Module):
    """Modules with one small parameter each."""

    class Link(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(16))

        def forward(self, x):
            return x * self.weight

    def __init__(self, length):
        super().__init__()
        self.links = torch.nn.Sequential(*[self.Link() for _ in range(length)])

    def forward(self, x):
        return self.links(x)


def make_step(tensors, strategy):
    model = Chain(tensors)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6, momentum=0.9)
    if strategy is not None:
        optimizer = gw.DistributedOptimizer(optimizer, model.named_parameters(), strategy=strategy)
    x = torch.ones(16)

    def step():
        optimizer.zero_grad(set_to_none=True)
        model(x).sum().backward()
        optimizer.step()

    return step, optimizer


def timed(step):
    begin = time.perf_counter()
    for _ in range(STEPS):
        step()
    return (time.perf_counter() - begin) / STEPS * 1e6


def main():
    torch.set_num_threads(1)
    gw.init()
    worst = 0
    print(f"{'strategy':16} {'tensors':>7} {'alone us':>9} {'overhead':>9} {'lowest':>9} {'overhead':>9} {'allowed':>8}")
    for strategy in sys.argv[1:] or ["schedule=wfbp", "schedule=dear", "schedule=p3"]:
        for tensors in TENSORS:
            (plain, _), (wrapped, kept) = make_step(tensors, None), make_step(tensors, strategy)
            timed(plain), timed(wrapped)
            alone, both = zip(*[(timed(plain), timed(wrapped)) for _ in range(ROUNDS)])
            kept.detach()
            usual, least = (f(both) - f(alone) for f in (statistics.median, min))
            allowed = PER_STEP_US + PER_TENSOR_US * tensors
            worst = max(worst, usual / allowed)
            print(f"{strategy:16} {tensors:7} {statistics.median(alone):9.0f} {usual:9.0f} {min(alone):9.0f} "
                  f"{least:9.0f} {allowed:8}", flush=True)
    return worst > 1


sys.exit(main())
