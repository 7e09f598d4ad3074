"""A job of `gradwire run --elastic` or `--restarts`: the process with member id 1 is killed in step 6, in the middle of
a forward pass, and at the end all ranks hold the same bits. A restarted process gets its state from the others.
Arguments: a strategy, and the number of ranks at the end."""
import os
import signal
import sys

import torch
import torch.nn.functional as F

import gradwire.torch as gw

LAST = 14


def made():
    torch.manual_seed(int(os.environ.get("GRADWIRE_GENERATION", "0")))  # a restarted rank has other weights at first
    model = torch.nn.Sequential(torch.nn.Linear(12, 100), torch.nn.ReLU(), torch.nn.Linear(100, 100), torch.nn.ReLU(),
                                torch.nn.Linear(100, 5))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    return model, gw.DistributedOptimizer(optimizer, model.named_parameters(), strategy=sys.argv[1])


def die(model):
    if os.environ["GRADWIRE_MEMBER"] == "1" and os.environ.get("GRADWIRE_GENERATION", "0") == "0":
        model[2].register_forward_pre_hook(lambda module, inputs: os.kill(os.getpid(), signal.SIGKILL))


def train(model, optimizer, step):
    if step == 6:
        die(model)
    x = torch.randn(8, 12)
    optimizer.zero_grad()
    F.cross_entropy(model(x), torch.randint(5, (8,))).backward()
    optimizer.step()


def share(model, optimizer, newest):
    """Broadcasts all state that a restarted rank needs; returns the next step."""
    gw.broadcast_parameters(model.state_dict(), newest)
    gw.broadcast_optimizer_state(optimizer, newest)
    return optimizer.step_number()


def main():
    newest = gw.init()
    model, optimizer = made()
    comes_back = gw.size() == int(sys.argv[2])  # else no rank is restarted, and survivors have all state
    step, shared, losses = 0, False, 0
    while step < LAST:
        try:
            if not shared:
                step, shared = share(model, optimizer, newest), True
            train(model, optimizer, step)
            step += 1
        except gw.GradwireError as error:
            if not error.lost:
                raise
            newest, shared, losses = gw.regroup(), not comes_back, losses + 1
            step = optimizer.step_number()
    optimizer.flush()
    held = [p.detach().clone() for p in model.parameters()]
    held += [optimizer.state[p]["momentum_buffer"] for p in model.parameters()]
    for other in gw.allgather_object(held):
        assert all(torch.equal(a, b) for a, b in zip(held, other)), "ranks differ"
    assert gw.size() == int(sys.argv[2]) and optimizer.step_number() == LAST, (gw.size(), optimizer.step_number())
    assert losses == (os.environ.get("GRADWIRE_GENERATION", "0") == "0"), losses


main()
