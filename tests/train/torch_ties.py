#!/usr/bin/env python3
"""Whether a gradient that differs from PyTorch's does so because of one near tie.

A relu whose input is zero but for rounding, or a max-pool whose two largest values are equal but for rounding, may be
decided one way here and the other way there; both are right. The step is repeated in double precision, then once more
for each of the nearest ties with that one decision turned round. Where a single one brings all gradients to rounding,
it was the reason.

usage: torch_ties.py HELPER MODEL [SEED...]      HELPER: build/tests/helper_train_step"""
import pathlib
import subprocess
import sys
import tempfile

import torch
import torch.nn.functional as F

import torch_model
import train_torch

BATCH, NEAREST = 8, 8


class Watched:
    """Stands for torch.nn.functional: keeps the inputs of relus and max-pools, and moves one value of one of them."""

    def __init__(self, flip):
        self.flip, self.inputs = flip, []

    def __getattr__(self, name):
        function = getattr(F, name)
        return function if name not in ("relu", "max_pool2d") else lambda x, *rest: function(self.see(name, x), *rest)

    def see(self, name, x):
        self.inputs.append((name, x.detach()))
        if self.flip is None or self.flip[0] != len(self.inputs) - 1:
            return x
        moved = torch.zeros(x.numel(), dtype=x.dtype)
        moved[self.flip[1]] = self.flip[2]
        return x + moved.view(x.shape)


def gradients(directory, flip):
    """In double precision; and what relus and max-pools were given."""
    torch_model.F = Watched(flip)
    parameters, _, _ = train_torch.repeat(directory, BATCH, torch.float64)
    watched, torch_model.F = torch_model.F, F
    return [t.grad for _, t in parameters], watched.inputs


def relu_ties(x):
    gaps, places = x.abs().flatten().topk(NEAREST, largest=False)
    return [(float(gap), int(place), -2 * float(x.flatten()[place])) for gap, place in zip(gaps, places)]


def pool_ties(x):
    n, c, h, w = x.shape

    def windows(t):
        return t.reshape(n, c, h // 2, 2, w // 2, 2).permute(0, 1, 2, 4, 3, 5).reshape(-1, 4)

    values, which = windows(x).topk(2, dim=1)
    gaps = torch.where(values[:, 0] > 0, values[:, 0] - values[:, 1], torch.ones_like(values[:, 0]))
    places = windows(torch.arange(x.numel()).view(x.shape)).gather(1, which)
    nearest, at = gaps.topk(NEAREST, largest=False)
    return [(float(gap), int(places[i, 1]), 2 * float(gap)) for gap, i in zip(nearest, at)]


def nearest_ties(inputs):
    """(gap, kind, flip), the nearest first; max-pools of 2 x 2 only, as all named models have them."""
    found = [(gap, name, (k, place, delta)) for k, (name, x) in enumerate(inputs)
             for gap, place, delta in (relu_ties(x) if name == "relu" else pool_ties(x))]
    return sorted(found)[:NEAREST]


def look(helper, model, seed):
    with tempfile.TemporaryDirectory() as name:
        directory = pathlib.Path(name)
        subprocess.run([helper, model, str(BATCH), str(seed), name], check=True, timeout=120)
        ours = [t for _, t in train_torch.read_table(directory, "parameters.txt", "gradients")]

        def worst(theirs):
            return max(train_torch.difference(a.double(), b) for a, b in zip(ours, theirs))

        theirs, inputs = gradients(directory, None)
        print(f"{model}, seed {seed}: the worst gradient is off by {worst(theirs):.1e}", flush=True)
        if worst(theirs) <= train_torch.TOLERANCE:
            return
        for gap, kind, flip in nearest_ties(inputs):
            print(f"     {kind:10} with a gap of {gap:.1e} turned round: {worst(gradients(directory, flip)[0]):.1e}",
                  flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    for number in sys.argv[3:] or ["1", "2", "3", "4", "5"]:
        look(sys.argv[1], sys.argv[2], int(number))
