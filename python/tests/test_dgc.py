"""compress=dgc takes the optimiser's momentum over: against the paper's algorithm in one process, with every form of
torch's SGD and with optimisers that keep their momentum."""
import copy

import torch

import cases
import gradwire.torch as gw
from gradwire.torch import momentum
from gradwire.torch.reducer import KEPT, OFFERED, UNSAID

WIDE, SMALL, STEPS, RATIO = 2048, 100, 6, 0.25  # fewer than 1,024 elements travel exact
LINE = f"compress=dgc:ratio={RATIO},warmup=0,feedback=worker"  # one pass: what each rank selects arrives


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        generator = torch.Generator().manual_seed(1)
        self.wide = torch.nn.Parameter(torch.randn(WIDE, 1, generator=generator))
        self.small = torch.nn.Parameter(torch.randn(SMALL, generator=generator))


def gradient_of(name, rank, step):
    shape = (WIDE, 1) if name == "wide" else (SMALL,)
    return torch.randn(shape, generator=torch.Generator().manual_seed(1000 * step + 10 * rank + len(name)))


def sgd(parameters, **settings):
    return torch.optim.SGD(parameters, **{"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01, **settings})


def wrapped(model, line=LINE, optimizer=sgd, **settings):
    return gw.DistributedOptimizer(optimizer(model.parameters(), **settings), model.named_parameters(), strategy=line)


def go(model, optimizer, steps=range(STEPS), schedule=None):
    for step in steps:
        optimizer.zero_grad()
        sum((p * gradient_of(name, gw.rank(), step)).sum() for name, p in model.named_parameters()).backward()
        optimizer.step()
        if schedule is not None:
            schedule.step()
    optimizer.flush()
    return model


class Paper:
    """Every rank's u and v of the wide parameter, in one process; SGD applies momentum to the decay, and to all of the
    small one."""

    def __init__(self, factor=0.9, decay=0.01, rate=0.1):
        self.factor, self.decay, self.rate, self.model = factor, decay, rate, Model()
        self.u, self.v = torch.zeros(gw.size(), WIDE), torch.zeros(gw.size(), WIDE)
        self.wide, self.small = torch.zeros(WIDE, 1), torch.zeros(SMALL)

    def sent(self, rank, step):
        u, v = self.u[rank], self.v[rank]
        u.mul_(self.factor).add_(gradient_of("wide", rank, step).flatten())
        v.add_(u)
        largest = v.abs().topk(int(RATIO * WIDE)).indices
        sent = torch.zeros(WIDE)
        sent[largest] = v[largest]
        u[largest] = v[largest] = 0
        return sent.view(WIDE, 1)

    @torch.no_grad()
    def run(self, steps=range(STEPS)):
        for step in steps:
            wide, small, ranks = self.model.wide, self.model.small, range(gw.size())
            self.wide.mul_(self.factor).add_(wide, alpha=self.decay)
            wide.sub_(self.rate * (self.wide + sum(self.sent(r, step) for r in ranks) / gw.size()))
            mean = sum(gradient_of("small", r, step) for r in ranks) / gw.size()
            self.small.mul_(self.factor).add_(mean).add_(small, alpha=self.decay)
            small.sub_(self.rate * self.small)
        return self.model


def same(model, other):
    for (name, a), (_, b) in zip(model.named_parameters(), other.named_parameters()):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5, msg=lambda text, name=name: f"{name}: {text}")


def test_momentum_moves_to_the_codec():
    for schedule in ("wfbp", "p3", "dear", "fifo"):
        model = Model()
        optimizer = wrapped(model, f"{LINE} schedule={schedule}")
        same(go(model, optimizer), Paper().run())
        assert optimizer.param_groups[0]["momentum"] == 0.9  # as it was: schedules and saved states see it
        optimizer.detach()


def test_the_optimiser_inside_the_step_leaves_it_out():
    """Steps of the warm-up of sync=delayed are those of bsp, but the reducer runs the optimiser."""
    model = Model()
    same(go(model, wrapped(model, f"{LINE} sync=delayed:warmup=100")), Paper().run())


def test_the_line_may_say_another_momentum():
    model, paper = Model(), Paper(factor=0.5, decay=0)
    go(model, wrapped(model, LINE + ",momentum=0.5", weight_decay=0))
    torch.testing.assert_close(model.wide, paper.run().wide, rtol=1e-5, atol=1e-5)


def test_no_momentum_is_none():
    model = Model()
    same(go(model, wrapped(model, momentum=0)), Paper(factor=0).run())


def test_the_optimiser_may_keep_its_own():
    """momentum=0: what arrives gets SGD's, after the exchange."""
    model, other = Model(), Model()
    go(model, wrapped(model, "compress=dgc:ratio=1,momentum=0,feedback=worker", nesterov=True))
    go(other, wrapped(other, "compress=none", nesterov=True))
    same(model, other)


def test_optimisers_that_keep_theirs_are_refused():
    made = {"adam": lambda p: torch.optim.Adam(p, lr=0.01), "nesterov": lambda p: sgd(p, nesterov=True),
            "dampening": lambda p: sgd(p, dampening=0.1), "rmsprop": lambda p: torch.optim.RMSprop(p, momentum=0.5),
            "two groups": lambda p: torch.optim.SGD([{"params": [q], "momentum": m} for q, m in zip(p, (0.9, 0.5))],
                                                    lr=0.1)}
    for name, optimizer in made.items():
        for line in (LINE, LINE + ",momentum=0.9"):
            model = Model()
            one = wrapped(model, line, optimizer)
            error = cases.refused("use dgc:momentum=0, or an optimiser with one plain momentum", go, model, one)
            assert error.status == "UNSUPPORTED", name
            one.detach()
        model = Model()
        go(model, wrapped(model, LINE + ",momentum=0", optimizer))


def test_what_is_known_of_optimisers():
    parameters = [torch.nn.Parameter(torch.zeros(3))]

    def known(optimizer):
        return momentum.of(type(optimizer), optimizer.param_groups)

    class Own(torch.optim.Optimizer):
        pass

    assert known(sgd(parameters)) == (OFFERED, 0.9)
    assert known(sgd(parameters, momentum=0)) == (OFFERED, 0)
    assert known(sgd(parameters, nesterov=True)) == (KEPT, 0)
    assert known(torch.optim.AdamW(parameters, betas=(0.8, 0.99))) == (KEPT, 0)
    assert known(torch.optim.Adagrad(parameters)) == (OFFERED, 0)
    assert known(Own(parameters, {})) == (UNSAID, 0)
    assert known(Own(parameters, {"momentum": 0.7})) == (KEPT, 0)


def test_schedules_that_change_the_momentum_are_reported():
    def cycle(optimizer, momentum_too):
        return torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=50, cycle_momentum=momentum_too)

    model = Model()
    optimizer = wrapped(model)
    cases.refused("use a schedule that leaves it as it is, such as OneCycleLR(cycle_momentum=False)", go, model,
                  optimizer, range(3), cycle(optimizer, True))
    optimizer.detach()
    model = Model()
    optimizer = wrapped(model)
    go(model, optimizer, range(3), cycle(optimizer, False))


def test_a_saved_run_goes_on():
    whole = Model()
    go(whole, wrapped(whole))
    model = Model()
    first = wrapped(model)
    go(model, first, range(3))
    saved = copy.deepcopy(first.state_dict())
    first.detach()
    second = wrapped(model)
    second.load_state_dict(saved)
    go(model, second, range(3, STEPS))
    for a, b in zip(whole.parameters(), model.parameters()):
        assert torch.equal(a, b)


def test_collectives_by_themselves_have_what_their_line_says():
    like = torch.randn(WIDE, 1)
    for line, done in (("compress=dgc", "compress=dgc:momentum=0,warmup=1000"),
                       ("compress=dgc:momentum=0.9,warmup=3", "compress=dgc:momentum=0.9,warmup=3")):
        with gw.CodedCollective("allreduce", "gradient", like, line) as coded:
            assert done in str(coded), str(coded)
            coded(like)


cases.run(globals())
