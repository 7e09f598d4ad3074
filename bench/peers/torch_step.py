#!/usr/bin/env python3
"""Milliseconds of one training step in PyTorch on one thread, in turns with bench_train on the same models.

usage: torch_step.py BUILD [MODEL BATCH]...     BUILD: where gradwire and bench/bench_train were built
CPU time, the best of several rounds. Layouts: PyTorch's default, and channels last; the faster one is compared."""
import pathlib
import re
import subprocess
import sys
import tempfile
import time

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests" / "train"))
import torch_model  # noqa: E402

ROUNDS, STEPS = 3, 10


def output_of(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def describe(build_directory, model):
    """The words of the input's line, and the whole description."""
    text = output_of(f"{build_directory}/gradwire", "model", model, "--text")
    return text.splitlines()[0].split(), text


def make_step(first, text, shapes, batch, channels_last):
    parameters = [torch.nn.Parameter(0.05 * torch.randn(s)) for s in shapes[0]]
    buffers = [torch.ones(s) for s in shapes[1]]
    if channels_last:
        for p in parameters:
            if p.dim() == 4:
                p.data = p.data.contiguous(memory_format=torch.channels_last)
    if first[1] == "tokens":
        x = torch.randint(int(first[3]), (batch, int(first[2])))
        labels = torch.randint(int(first[3]), (batch, int(first[2])))
    else:
        x = torch.randn(batch, int(first[3]), int(first[1]), int(first[2]))
        labels = torch.randint(10, (batch,))
        if channels_last:
            x = x.contiguous(memory_format=torch.channels_last)
    net, optimiser = torch_model.Model(text, parameters, buffers), torch.optim.SGD(parameters, lr=1e-4, momentum=0.9)

    def step():
        optimiser.zero_grad(set_to_none=True)
        torch_model.loss(net.forward(x), labels).backward()
        optimiser.step()

    return step


def shapes_of(build_directory, model):
    with tempfile.TemporaryDirectory() as name:
        subprocess.run([f"{build_directory}/tests/helper_train_step", model, "2", "1", name], check=True)
        tables = [(pathlib.Path(name) / file).read_text() for file in ("parameters.txt", "buffers.txt")]
    return [[[int(d) for d in line.split()[1:]] for line in table.splitlines()] for table in tables]


def best_of(step):
    times = []
    for _ in range(STEPS):
        begin = time.process_time()
        step()
        times.append(time.process_time() - begin)
    return min(times) * 1e3


def ours(build_directory, model, batch):
    out = output_of(f"{build_directory}/bench/bench_train", model, str(batch), str(STEPS))
    return float(re.search(r"cpu\s+([\d.]+) ms", out).group(1))


def main():
    torch.set_num_threads(1)
    torch.manual_seed(1)
    directory, pairs = sys.argv[1], sys.argv[2:] or ["cnn", "64", "resnet20", "32"]
    for model, batch in zip(pairs[::2], map(int, pairs[1::2])):
        first, text = describe(directory, model)
        shapes = shapes_of(directory, model)
        layouts = {"default": False, "nhwc": True}
        steps = {name: make_step(first, text, shapes, batch, last) for name, last in layouts.items()}
        found = {"gradwire": 1e9, **{name: 1e9 for name in steps}}
        for name, step in steps.items():
            step()
        for _ in range(ROUNDS):
            found["gradwire"] = min(found["gradwire"], ours(directory, model, batch))
            for name, step in steps.items():
                found[name] = min(found[name], best_of(step))
        torch_best = min(found["default"], found["nhwc"])
        print(f"{model:9} batch {batch:3}  gradwire {found['gradwire']:8.2f} ms  torch {torch.__version__} default "
              f"{found['default']:8.2f} ms  channels last {found['nhwc']:8.2f} ms  "
              f"torch/gradwire {torch_best / found['gradwire']:.2f}", flush=True)


main()
