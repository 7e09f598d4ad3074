#!/usr/bin/env python3
"""What the binding itself costs: microseconds that a step takes longer with DistributedOptimizer than with the
optimiser alone, in one process (nothing travels), by the number of tensors.

usage: python_overhead.py [STRATEGY]..."""
import pathlib
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "python"))
import torch  # noqa: E402

import gradwire.torch as gw  # noqa: E402

ROUNDS, STEPS, TENSORS = 9, 40, (2, 40, 160)
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


def stepper(tensors, strategy):
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
    print(f"{'strategy':24} {'tensors':>7} {'alone us':>9} {'wrapped us':>10} {'overhead':>9} {'allowed':>8}")
    for strategy in sys.argv[1:] or ["schedule=wfbp", "schedule=dear", "schedule=p3"]:
        for tensors in TENSORS:
            (plain, _), (wrapped, kept) = stepper(tensors, None), stepper(tensors, strategy)
            timed(plain), timed(wrapped)
            pairs = [(timed(plain), timed(wrapped)) for _ in range(ROUNDS)]
            kept.flush()
            alone, over = statistics.median(a for a, _ in pairs), statistics.median(w - a for a, w in pairs)
            allowed = PER_STEP_US + PER_TENSOR_US * tensors
            worst = max(worst, over / allowed)
            print(f"{strategy:24} {tensors:7} {alone:9.0f} {alone + over:10.0f} {over:9.0f} {allowed:8}", flush=True)
    return worst > 1


sys.exit(main())
