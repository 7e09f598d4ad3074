"""Learning rates that change from step to step: residuals of codecs, and updates that are made later."""
import copy
import warnings

import torch

import cases
import gradwire.torch as gw
from gradwire._library import read_counters

COUNT, STEPS, DRAIN = 2048, 8, 30  # fewer elements would travel whole
RATES = (0.1, 0.4, 0.4, 0.05, 0.2, 0.1, 0.1, 0.3)


def follow(optimizer):
    """A schedule: the rate of step i is RATES[i]."""
    return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: RATES[min(step, STEPS - 1)])


def gradient_of(step):
    """Zeros at the end, in which the codec sends all that it has left."""
    if step >= STEPS:
        return torch.zeros(COUNT, 1)
    return torch.randn(COUNT, 1, generator=torch.Generator().manual_seed(step))


def go(weight, optimizer, schedule, steps):
    for step in steps:
        optimizer.zero_grad()
        (weight * gradient_of(step)).sum().backward()
        optimizer.step()
        schedule.step()
    optimizer.flush()


def check(weight):
    """Whatever was sent late has the rate of its own step."""
    expected = -sum(rate * gradient_of(step) for step, rate in enumerate(RATES))
    torch.testing.assert_close(weight.detach(), expected, rtol=1e-4, atol=1e-5)


def made(line):
    weight = torch.nn.Parameter(torch.zeros(COUNT, 1))
    optimizer = gw.DistributedOptimizer(torch.optim.SGD([weight], lr=1), [("weight", weight)], strategy=line)
    return weight, optimizer, follow(optimizer)


def test_residuals_keep_the_weight_of_their_step():
    for schedule in ("wfbp", "dear"):
        weight, optimizer, rates = made(f"compress=topk:ratio=0.25 schedule={schedule}")
        go(weight, optimizer, rates, range(STEPS + DRAIN))
        check(weight)
        assert read_counters(optimizer._reducer.handle).codec_bytes
        optimizer.detach()


def test_also_over_a_checkpoint():
    weight, optimizer, rates = made("compress=topk:ratio=0.25")
    go(weight, optimizer, rates, range(3))  # the rate changes in the next one
    saved, at = copy.deepcopy(optimizer.state_dict()), rates.state_dict()
    other, second, rates = made("compress=topk:ratio=0.25")
    other.data.copy_(weight.data)
    second.load_state_dict(saved)
    rates.load_state_dict(at)
    go(other, second, rates, range(3, STEPS + DRAIN))
    check(other)
    optimizer.detach()
    second.detach()


def test_groups_whose_rates_change_differently_are_named():
    weight, bias = torch.nn.Parameter(torch.zeros(COUNT, 1)), torch.nn.Parameter(torch.zeros(1))
    given = torch.optim.SGD([{"params": [bias], "lr": 0.5}, {"params": [weight], "lr": 1}])
    named = [("weight", weight), ("bias", bias)]
    optimizer = gw.DistributedOptimizer(given, named, strategy="compress=topk:ratio=0.25")
    schedules = ((lambda step: 0.5 ** step, lambda step: 0.5 ** step), (lambda step: 1, lambda step: RATES[step]))
    for number, factors in enumerate(schedules):
        rates = torch.optim.lr_scheduler.LambdaLR(optimizer, list(factors))
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            for step in range(3):
                optimizer.zero_grad()
                (weight * gradient_of(step) + bias).sum().backward()
                optimizer.step()
                rates.step()
        about = [w for w in said if "scaled by that of group 1, the largest" in str(w.message)]
        assert len(about) == number, [str(w.message) for w in said]
    optimizer.detach()


def test_delayed_updates_have_the_rate_of_their_step():
    """The shared weights get the mean of step i with the rate of step i, though it arrives in step i + 1."""
    for tensor in (False, True):
        weight = torch.nn.Parameter(torch.zeros(COUNT, 1))
        first = torch.tensor(RATES[0]) if tensor else RATES[0]
        given = torch.optim.SGD([weight], lr=first, foreach=False)
        optimizer = gw.DistributedOptimizer(given, [("weight", weight)], strategy="sync=delayed:warmup=1")
        for step in range(STEPS):
            optimizer.zero_grad()
            (weight * gradient_of(step)).sum().backward()
            optimizer.step()
            for group in optimizer.param_groups:
                if tensor:
                    group["lr"].fill_(RATES[(step + 1) % STEPS])
                else:
                    group["lr"] = RATES[(step + 1) % STEPS]
        optimizer.flush()
        check(weight)
        optimizer.detach()


cases.run(globals())
