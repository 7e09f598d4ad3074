#!/usr/bin/env python3
"""A small GPT learns the King James Bible, byte by byte, data parallel, and writes a few verses.

    gradwire run -n 2 -- python3 train.py
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


class Block(torch.nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.before, self.between = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
        self.queries, self.out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.wide, self.narrow = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)

    def forward(self, x, mask):
        batch, length, width = x.shape
        q, k, v = (t.view(batch, length, self.heads, -1).transpose(1, 2)
                   for t in self.queries(self.before(x)).chunk(3, dim=2))
        weights = (q @ k.transpose(2, 3) / k.shape[-1] ** 0.5 + mask).softmax(-1)
        x = x + self.out((weights @ v).transpose(1, 2).reshape(batch, length, width))
        return x + self.narrow(F.gelu(self.wide(self.between(x))))


class GPT(torch.nn.Module):
    def __init__(self, window, width, heads, depth):
        super().__init__()
        self.letters, self.places = torch.nn.Embedding(256, width), torch.nn.Embedding(window, width)
        self.blocks = torch.nn.ModuleList([Block(width, heads) for _ in range(depth)])
        self.norm, self.head = torch.nn.LayerNorm(width), torch.nn.Linear(width, 256, bias=False)
        self.head.weight = self.letters.weight
        torch.nn.init.normal_(self.letters.weight, std=0.02)
        self.register_buffer("mask", torch.full((window, window), float("-inf")).triu(1))

    def forward(self, x):
        length = x.shape[1]
        y = self.letters(x) + self.places(torch.arange(length))
        for block in self.blocks:
            y = block(y, self.mask[:length, :length])
        return self.head(self.norm(y))


@torch.no_grad()
def written(model, window, start=b"In the beginning ", length=160):
    line = torch.tensor(list(start))
    for _ in range(length):
        chances = (model(line[-window:].unsqueeze(0))[0, -1] / 0.8).softmax(0)
        line = torch.cat([line, torch.multinomial(chances, 1)])
    return bytes(line.tolist()).decode(errors="replace")


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--steps", type=int, default=1000)
    options.add_argument("--batch", type=int, default=8, help="of one rank")
    options.add_argument("--window", type=int, default=64)
    options.add_argument("--width", type=int, default=96, help="a multiple of six, the number of heads")
    options.add_argument("--depth", type=int, default=3)
    options.add_argument("--lr", type=float, default=1e-3)
    options.add_argument("--strategy", help="laid over that of gradwire run")
    options = options.parse_args()

    gw.init()
    torch.manual_seed(1)
    model = GPT(options.window, options.width, 6, options.depth)
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr)
    optimizer = gw.DistributedOptimizer(optimizer, model.named_parameters(), strategy=options.strategy)
    gw.broadcast_parameters(model.state_dict())

    letters, test = data.text("bible")
    chosen = torch.Generator().manual_seed(2 + gw.rank())
    begun = time.time()
    for step in range(1, options.steps + 1):
        at = torch.randint(len(letters) - options.window - 1, (options.batch,), generator=chosen)
        lines = torch.stack([letters[i:i + options.window + 1] for i in at])
        optimizer.zero_grad()
        loss = F.cross_entropy(model(lines[:, :-1]).flatten(0, 1), lines[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        if step % 20 == 0 or step == options.steps:
            mean = gw.allreduce(loss, name="loss").item()
            if gw.rank() == 0:
                print(f"step {step}  loss {mean:.3f}  {time.time() - begun:.1f} s", flush=True)
    optimizer.flush()
    if gw.rank() == 0:
        print(written(model, options.window), flush=True)
    gw.shutdown()


main()
