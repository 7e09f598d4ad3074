#!/usr/bin/env python3
"""A convolutional network learns Fashion-MNIST, data parallel.

    gradwire run -n 2 -- python3 train.py
    gradwire run -H node1,node2 --strategy 'compress=topk:ratio=0.01 schedule=wfbp' -- python3 train.py
    torchrun --nproc_per_node 2 train.py
    mpirun -n 2 python3 train.py"""
import argparse
import pathlib
import sys
import time

import torch
import torch.nn.functional as F

import gradwire.torch as gw

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import data  # noqa: E402


def network():
    return torch.nn.Sequential(
        torch.nn.Conv2d(1, 32, 3, padding=1), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
        torch.nn.Conv2d(32, 64, 3, padding=1), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
        torch.nn.Flatten(), torch.nn.Linear(64 * 49, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))


@torch.no_grad()
def accuracy(model, images, labels, scaled):
    """Each rank tests its share."""
    right = torch.zeros(2)
    for first in range(gw.rank() * 500, len(labels), gw.size() * 500):
        part = slice(first, first + 500)
        right += torch.tensor([(model(scaled(images[part])).argmax(1) == labels[part]).sum(), len(labels[part])])
    right = gw.allreduce(right, name="accuracy", op=gw.Sum)
    return (right[0] / right[1]).item()


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--epochs", type=int, default=2)
    options.add_argument("--steps", type=int, default=10**9, help="at most so many in an epoch")
    options.add_argument("--batch", type=int, default=64, help="of one rank")
    options.add_argument("--lr", type=float, default=0.05)
    options.add_argument("--strategy", help="laid over that of gradwire run")
    options = options.parse_args()

    gw.init()
    torch.manual_seed(1)
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=options.lr, momentum=0.9)
    optimizer = gw.DistributedOptimizer(optimizer, model.named_parameters(), strategy=options.strategy)
    gw.broadcast_parameters(model.state_dict())

    (images, labels), test, scaled = data.images("fashion-mnist", [0.2860], [0.3530])
    for epoch in range(options.epochs):
        begun, steps, loss = time.time(), 0, torch.zeros(())
        for indices in data.batches(len(labels), options.batch, gw.rank(), gw.size(), epoch):
            if steps == options.steps:
                break
            optimizer.zero_grad()
            loss = F.cross_entropy(model(scaled(images[indices])), labels[indices])
            loss.backward()
            optimizer.step()
            steps += 1
            if gw.rank() == 0 and steps % 100 == 0:
                print(f"epoch {epoch + 1}  step {steps}  loss {loss.item():.3f}", flush=True)
        took, found = time.time() - begun, accuracy(model, *test, scaled)
        if gw.rank() == 0:
            print(f"epoch {epoch + 1}  {steps} steps in {took:.1f} s  test accuracy {100 * found:.1f} %", flush=True)
    gw.shutdown()


main()
