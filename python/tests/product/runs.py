"""Trains a model twice, in one process with the whole batch and at N ranks, and compares weights, the losses of this
rank's rows and the state of the optimiser. A step is a function of the run, its rows and the number of the step."""
import torch
from torch import nn

import gradwire.torch as gw
from tests.product.values import STEPS, batch, close, loss_of, network, part, parts, state_of, weights


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.2, momentum=0.9, weight_decay=0.01)


def adam(parameters):
    return torch.optim.Adam(parameters, lr=0.02)


class Run:
    """A model and its optimiser: of one process alone, or as distribute(run) makes them for a rank, where `module` is
    the model itself and `model` what wraps it. `kept` is what keep_before or keep_after made of the optimiser before or
    after that, a scheduler for example."""

    def __init__(self, alone, distribute, make, make_optimizer, keep_before=None, keep_after=None):
        self.alone = alone
        self.model = self.module = make()
        self.optimizer = make_optimizer(self.module.parameters())
        self.kept = keep_before and keep_before(self.optimizer)
        self.finish = lambda: None
        if not alone:
            distribute(self)
        self.kept = keep_after(self.optimizer) if keep_after else self.kept
        self.losses = []

    def train(self, step, steps, dtype):
        for number in range(steps):
            pair = batch(number, dtype)
            if not self.alone:
                self.losses.append(step(self, part(pair), number))
                continue
            if step is step_plain:
                with torch.no_grad():  # what this rank is to compute
                    self.losses.append(loss_of(self.module, part(pair)).item())
            step(self, pair, number)
        self.finish()
        return self


def run_alone(make=network, make_optimizer=sgd, step=None, steps=STEPS, dtype=torch.float64, **keeps):
    return Run(True, None, make, make_optimizer, **keeps).train(step or step_plain, steps, dtype)


def run_rank(distribute, make=network, make_optimizer=sgd, step=None, steps=STEPS, dtype=torch.float64, **keeps):
    return Run(False, distribute, make, make_optimizer, **keeps).train(step or step_plain, steps, dtype)


def compared(distribute, make=network, make_optimizer=sgd, tolerance=None, state=True, **same):
    """Both runs, after they were found the same. `same` are the other arguments of both."""
    single = run_alone(make, make_optimizer, **same)
    run = run_rank(distribute, make, make_optimizer, **same)
    close(weights(run.module), weights(single.module), tolerance)
    if state:
        close(state_of(run.optimizer), state_of(single.optimizer), tolerance, "state")
    if single.losses:
        close(run.losses, single.losses, tolerance or 1e-6, "loss")
    return run, single


def close_to_rounded(model, half):
    """The float32 network after one step of SGD with rate 1 and gradients that each rank rounds to a half type."""
    single = network(torch.float32)
    sums = [torch.zeros_like(p) for p in single.parameters()]
    for one in parts(batch(0, torch.float32)):
        gradients = torch.autograd.grad(loss_of(single, one), list(single.parameters()))
        sums = [s + g.to(half).float() for s, g in zip(sums, gradients)]
    for (name, p), q, s in zip(model.named_parameters(), single.parameters(), sums):
        close(p, q.detach() - s / gw.size(), s.abs().max().item() / gw.size() * torch.finfo(half).eps, name)


# ---- steps ----

def step_plain(run, pair, number):
    run.optimizer.zero_grad()
    loss = loss_of(run.model, pair)
    loss.backward()
    run.optimizer.step()
    return loss.item()


def step_in_parts(forward):
    """One process sees the batch as the ranks do, part by part: for arithmetic that rounds, and for models whose rows
    are not independent. forward(model, pair, rank) returns the loss of the rows of a rank."""
    def step(run, pair, number):
        run.optimizer.zero_grad()
        if run.alone:
            for rank, one in enumerate(parts(pair)):
                (forward(run.model, one, rank) / gw.size()).backward()
        else:
            forward(run.model, pair, gw.rank()).backward()
        run.optimizer.step()
    return step


def step_scheduled(run, pair, number):
    """The kept object is a scheduler of the rate."""
    step_plain(run, pair, number)
    run.kept.step()


def clip_norm(model):
    nn.utils.clip_grad_norm_(model.parameters(), 0.3)


def clip_value(model):
    nn.utils.clip_grad_value_(model.parameters(), 0.05)


def clip_by_hand(model):
    for p in model.parameters():
        p.grad.mul_(0.5)


CLIPPINGS = {"norm": clip_norm, "value": clip_value, "by hand": clip_by_hand}


def use_gradients(run, use, synchronizes=False):
    """Calls use(), which needs gradients, after synchronize() or without it. A schedule that has them on their way then
    has to refuse, and to say what to call; with that it has to go on."""
    if synchronizes and not run.alone:
        run.optimizer.synchronize()
    try:
        use()
    except gw.GradwireError as error:
        assert "Call optimizer.synchronize() before you clip or read it" in str(error) and not synchronizes, error
        run.optimizer.synchronize()
        use()


def step_clipped(clip, synchronizes):
    def step(run, pair, number):
        run.optimizer.zero_grad()
        loss_of(run.model, pair).backward()
        use_gradients(run, lambda: clip(run.model), synchronizes)
        run.optimizer.step()
    return step


def scaler(_):
    return torch.amp.GradScaler("cpu", init_scale=256.0)


def step_scaled(clips, synchronizes, overflows=-1):
    """The kept object is a GradScaler. In step `overflows` the first rank's loss is infinite: none may update."""
    def step(run, pair, number):
        run.optimizer.zero_grad()
        loss = loss_of(run.model, pair)
        if number == overflows and (run.alone or gw.rank() == 0):
            loss = loss * float("inf")
        run.kept.scale(loss).backward()
        if clips:
            use_gradients(run, lambda: run.kept.unscale_(run.optimizer), synchronizes)
            clip_norm(run.model)
            run.kept.step(run.optimizer)
        else:
            use_gradients(run, lambda: run.kept.step(run.optimizer), synchronizes)
        run.kept.update()
    return step
