"""The profile of a model: every layer once, in the order of the forward pass, with times that make up the step."""
import os
import tempfile
import time

import torch

import cases
import gradwire.torch as gw


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.late, self.early = torch.nn.Linear(400, 400), torch.nn.Linear(400, 400)
        self.attention = torch.nn.MultiheadAttention(400, 4)

    def forward(self, x):
        y = torch.relu(self.early(x))
        return self.late(y + self.attention(y, y, y)[0]) + self.early(x)


def test_profile():
    model = torch.nn.Sequential(Block(), torch.nn.ReLU(inplace=True), torch.nn.Linear(400, 3))
    x = torch.randn(4, 64, 400)
    before = [p.clone() for p in model.parameters()]
    with tempfile.TemporaryDirectory() as directory:
        begin = time.perf_counter()
        path = gw.profile(model, x, os.path.join(directory, "p.csv"), steps=3)
        took = (time.perf_counter() - begin) / 4
        lines = open(path, encoding="utf-8").read().splitlines()
    assert lines[0].startswith("# Sequential, batch 4, cpu"), lines[0]
    assert lines[1] == "layer,kind,parameter_bytes,forward_us,backward_us"
    rows = [line.split(",") for line in lines[2:]]
    assert [r[0] for r in rows] == ["0.early", "0.attention", "0.late", "1", "2"], rows
    assert [r[1] for r in rows] == ["Linear", "MultiheadAttention", "Linear", "ReLU", "Linear"]
    assert sum(int(r[2]) for r in rows) == 4 * sum(p.numel() for p in model.parameters())
    assert all(float(r[3]) > 0 and float(r[4]) > 0 for r in rows)
    assert 0.2 * took < sum(float(r[3]) + float(r[4]) for r in rows) / 1e6 < 1.5 * took
    assert all(torch.equal(a, b) and b.grad is None for a, b in zip(before, model.parameters()))


def test_what_travels_is_refused():
    model = torch.nn.Linear(4, 2)
    optimizer = gw.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters())
    cases.refused('sends the gradient of parameter "weight": profile the model before', gw.profile, model, torch.ones(4))
    optimizer.detach()


cases.run(globals())
