#!/usr/bin/env python3
"""torchvision's ResNet-18 learns CIFAR-10, data parallel (Debian: python3-torchvision).

    gradwire run -n 2 -- python3 train.py
    torchrun --nproc_per_node 2 train.py
    mpirun -n 2 python3 train.py"""
import argparse
import pathlib
import sys
import time

import torch
import torch.nn.functional as F
import torchvision

import gradwire.torch as gw

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import data  # noqa: E402


def network():
    """For pictures of 32 x 32: a small first convolution, and nothing halved before the first block."""
    model = torchvision.models.resnet18(num_classes=10)
    model.conv1 = torch.nn.Conv2d(3, 64, 3, padding=1, bias=False)
    model.maxpool = torch.nn.Identity()
    return model


def augmented(pixels):
    """Shifted by up to four pixels, and mirrored half of the time."""
    top, left = torch.randint(0, 9, (2,)).tolist()
    shifted = F.pad(pixels, (4, 4, 4, 4))[:, :, top:top + 32, left:left + 32]
    return shifted.flip(3) if torch.rand(()) < 0.5 else shifted


@torch.no_grad()
def accuracy(model, images, labels, scaled):
    model.eval()
    right = torch.zeros(2)
    for first in range(gw.rank() * 250, len(labels), gw.size() * 250):
        part = slice(first, first + 250)
        right += torch.tensor([(model(scaled(images[part])).argmax(1) == labels[part]).sum(), len(labels[part])])
    model.train()
    right = gw.allreduce(right, name="accuracy", op=gw.Sum)
    return (right[0] / right[1]).item()


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--epochs", type=int, default=5)
    options.add_argument("--steps", type=int, default=10**9, help="at most so many in an epoch")
    options.add_argument("--batch", type=int, default=32, help="of one rank")
    options.add_argument("--lr", type=float, default=0.05, help="at its highest")
    options.add_argument("--test", type=int, default=10000, help="pictures to test with")
    options.add_argument("--strategy", help="laid over that of gradwire run")
    options = options.parse_args()

    gw.init()
    torch.manual_seed(1 + gw.rank())  # crops differ; the first rank's parameters are sent to all
    model = network().to(memory_format=torch.channels_last)
    (images, labels), test, scaled = data.images("cifar10", [0.4914, 0.4822, 0.4465], [0.2470, 0.2435, 0.2616])
    test = tuple(part[:options.test] for part in test)
    optimizer = torch.optim.SGD(model.parameters(), lr=options.lr, momentum=0.9, weight_decay=5e-4)
    optimizer = gw.DistributedOptimizer(optimizer, model.named_parameters(), strategy=options.strategy)
    in_all = options.epochs * min(options.steps, len(labels) // (options.batch * gw.size()))
    rate = torch.optim.lr_scheduler.OneCycleLR(optimizer, options.lr, max(in_all, 2))
    gw.broadcast_parameters(model.state_dict())

    for epoch in range(options.epochs):
        begun, steps = time.time(), 0
        for indices in data.batches(len(labels), options.batch, gw.rank(), gw.size(), epoch):
            if steps == options.steps:
                break
            optimizer.zero_grad()
            x = scaled(augmented(images[indices])).contiguous(memory_format=torch.channels_last)
            loss = F.cross_entropy(model(x), labels[indices])
            loss.backward()
            optimizer.step()
            rate.step()
            steps += 1
            if gw.rank() == 0 and steps % 10 == 0:
                print(f"epoch {epoch + 1}  step {steps}  loss {loss.item():.3f}  "
                      f"{steps * options.batch * gw.size() / (time.time() - begun):.1f} images/s", flush=True)
        took, found = time.time() - begun, accuracy(model, *test, scaled)
        if gw.rank() == 0:
            print(f"epoch {epoch + 1}  {steps} steps in {took:.1f} s  test accuracy {100 * found:.1f} %", flush=True)
    gw.shutdown()


main()
