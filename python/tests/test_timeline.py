"""The timeline has the layers of a model by the names of their modules, forward and backward, on each rank."""
import json
import os
import tempfile

import torch
import torch.utils.checkpoint
from torch.nn.modules import module as hooks

import cases
import gradwire.torch as gw

STEPS = 3


class Block(torch.nn.Module):
    """Owns a parameter, so it is a layer around others."""

    def __init__(self):
        super().__init__()
        self.norm, self.wide = torch.nn.LayerNorm(32), torch.nn.Linear(32, 32)
        self.scale = torch.nn.Parameter(torch.ones(32))

    def forward(self, x):
        return self.wide(self.norm(x) * self.scale)


def network():
    torch.manual_seed(2)
    return torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.ReLU(inplace=True), Block(), torch.nn.Linear(32, 4))


def train(model, optimizer, again=None):
    for step in range(STEPS):
        x = torch.randn(16, 8, generator=torch.Generator().manual_seed(10 * step + gw.rank()))
        optimizer.zero_grad()
        (again or model)(x).square().mean().backward()
        optimizer.step()
    optimizer.flush()


def hooked():
    return len(hooks._global_forward_pre_hooks), len(hooks._global_forward_hooks)


def recorded(strategy, again=None, early=False):
    """The events of all ranks of a training run; early: the recording begins before the optimiser is made. All hooks
    are removed afterwards."""
    model, before = network(), hooked()
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(gw.broadcast_object(directory), "timeline.json")
        if early:
            gw.start_timeline(path)
        optimizer = gw.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters(),
                                            strategy=strategy)
        if not early:
            gw.start_timeline(path)
        waits = "dear" in strategy  # before every forward
        assert hooked() == (before[0] + 1 + waits, before[1] + 1)
        train(model, optimizer, again and again(model))
        gw.stop_timeline()
        train(model, optimizer)
        optimizer.detach()
        assert hooked() == before
        gw.barrier()  # all have ended theirs
        with open(path, encoding="utf-8") as file:
            events = json.load(file)
        gw.barrier()
    return [e for e in events if e.get("cat") in ("forward", "backward", "waited")]


def named(events, rank, kind, step):
    """In the order of their first beginnings."""
    mine = [e for e in events if e["pid"] == rank and e["cat"] == kind and e["args"]["number"] == step]
    return list(dict.fromkeys(e["name"] for e in sorted(mine, key=lambda e: e["ts"])))


def end(event):
    return event["ts"] + event["dur"]


def test_layers_by_their_names():
    for strategy in ("schedule=wfbp", "schedule=dear"):
        events = recorded(strategy)
        for rank in range(gw.size()):
            for step in range(STEPS):
                assert named(events, rank, "forward", step) == ["0", "1", "2", "2.norm", "2.wide", "3"], (rank, step)
                assert named(events, rank, "backward", step) == ["3", "2.wide", "2.norm", "1", "0"], (rank, step)
            track = sorted((e for e in events if e["pid"] == rank and e["cat"] != "waited"), key=lambda e: e["ts"])
            assert all(end(a) <= b["ts"] + 0.01 for a, b in zip(track, track[1:]))  # one thing at a time


def test_waiting_is_no_layers_work():
    events = recorded("schedule=dear", early=True)
    waits = [e for e in events if e["cat"] == "waited"]
    assert waits
    for layer in (e for e in events if e["cat"] == "forward" and e["name"] != "2"):  # others wait inside of that one
        for wait in (w for w in waits if w["pid"] == layer["pid"]):
            assert end(wait) <= layer["ts"] + 1 or end(layer) <= wait["ts"] + 1, (layer, wait)


def test_a_part_of_a_model_that_is_called_by_itself():
    def parts(model):
        return lambda x: model[3](model[2](model[1](model[0](x))))

    events = recorded("schedule=wfbp", parts)
    assert named(events, 0, "backward", 1) == ["3", "2.wide", "2.norm", "ReLU", "0"], named(events, 0, "backward", 1)


def test_what_is_computed_again_and_what_fails():
    model = network()
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(gw.broadcast_object(directory), "timeline.json")
        gw.start_timeline(path)
        x = torch.randn(16, 8, requires_grad=True)
        torch.utils.checkpoint.checkpoint(model, x).sum().backward()
        try:
            model(torch.randn(16, 7))
        except RuntimeError:
            pass
        model(x).sum().backward()
        gw.stop_timeline()
        gw.barrier()
        with open(path, encoding="utf-8") as file:
            events = [e for e in json.load(file) if e.get("cat") in ("forward", "backward")]
        gw.barrier()
    first = [e["name"] for e in sorted(events, key=lambda e: e["ts"]) if e["pid"] == 0 and e["name"] == "2.wide"]
    assert len(first) == 5, first  # forward, again, back; forward, back
    cases.refused("no recording is under way", gw.stop_timeline)


cases.run(globals())
