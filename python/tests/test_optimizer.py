"""DistributedOptimizer against one process that has the joined batch, over strategies and unusual models."""
import copy
import itertools
import os

import torch
import torch.nn.functional as F

import cases
import gradwire.torch as gw

STEPS, BATCH = 5, 4


class Network(torch.nn.Module):
    """Normalisation, attention (which uses weights of a module it never calls), tied weights, a loose parameter."""

    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(11, 16)
        self.attention = torch.nn.MultiheadAttention(16, 2, batch_first=True)
        self.norm = torch.nn.LayerNorm(16)
        self.wide = torch.nn.Linear(16, 64)
        self.narrow = torch.nn.Linear(64, 16)
        self.head = torch.nn.Linear(16, 11)
        self.head.weight = self.table.weight
        self.scale = torch.nn.Parameter(torch.ones(16))

    def forward(self, x):
        y = self.table(x) * self.scale
        y = self.norm(y + self.attention(y, y, y)[0])
        return self.head(y + self.narrow(torch.relu(self.wide(y)))).flatten(0, 1)


def made(kind=Network, dtype=torch.float64):
    torch.manual_seed(3)
    return kind().to(dtype)


def batch(step):
    generator = torch.Generator().manual_seed(50 + step)
    return torch.randint(11, (2, BATCH * gw.size(), 6), generator=generator)


def part(tensor):
    return tensor[gw.rank() * BATCH:(gw.rank() + 1) * BATCH]


def loss_of(model, pair):
    return F.cross_entropy(model(pair[0]).float() if next(model.parameters()).dtype == torch.float16 else
                           model(pair[0]), pair[1].flatten())


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.2, momentum=0.9, weight_decay=0.01)


def train(model, optimizer, steps=range(STEPS), whole=False, scheduler=None, passes=1):
    """passes: the batch is cut into so many parts, each weighted by its number of examples."""
    for step in steps:
        pair = batch(step)
        pair = pair if whole else torch.stack([part(pair[0]), part(pair[1])])
        optimizer.zero_grad(set_to_none=True)
        for piece in pair.chunk(passes, dim=1):
            (loss_of(model, piece) / passes).backward()
        optimizer.step()
        if scheduler is not None:
            scheduler.step()
    return model


def reference(make_optimizer=sgd, schedule=None, **options):
    model = made(**options)
    optimizer = make_optimizer(model.parameters())
    return train(model, optimizer, whole=True, scheduler=schedule and schedule(optimizer))


def wrapped(model, strategy=None, make_optimizer=sgd, **options):
    return gw.DistributedOptimizer(make_optimizer(model.parameters()), model.named_parameters(), strategy=strategy,
                                   **options)


def equal(a, b, tolerance=1e-9):
    for (name, x), y in zip(a.named_parameters(), b.parameters()):
        torch.testing.assert_close(x, y, rtol=tolerance, atol=tolerance, msg=lambda m, name=name: f"{name}: {m}")


def agree(model):
    for name, p in model.named_parameters():
        for other in gw.allgather_object(p.detach()):
            assert torch.equal(p, other), name


SCHEDULES = ("fifo", "wfbp:fuse=2000", "mgwfbp", "p3:slice=16K", "bytescheduler", "tictac", "tictac:mode=tac", "dear",
             "dear:fuse=2000")
ARCHITECTURES = ("auto", "ring", "halving", "tree", "direct", "hierarchical", "ps", "ps:servers=2")


def trains_as_one(single, line):
    model = made()
    optimizer = wrapped(model, line)
    train(model, optimizer)
    optimizer.flush()
    equal(single, model)
    agree(model)


def test_some_strategies():
    single = reference()
    for line in ("schedule=wfbp", "schedule=p3:slice=16K arch=halving", "schedule=dear arch=ring", "arch=ps"):
        trains_as_one(single, line)


def test_the_product_of_schedules_and_architectures():
    single = reference()
    for arch, schedule in itertools.product(ARCHITECTURES, SCHEDULES):
        if not (arch.startswith("ps") and schedule.startswith("dear")):  # which is refused
            trains_as_one(single, f"arch={arch} schedule={schedule}")


def test_other_optimisers_and_schedules_of_the_rate():
    def decay(optimizer):
        return torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)

    for optimiser in (lambda p: torch.optim.Adam(p, lr=0.01), lambda p: torch.optim.AdamW(p, lr=0.01), sgd):
        single = reference(optimiser, decay)
        for line in ("schedule=wfbp", "schedule=dear"):
            model = made()
            optimizer = wrapped(model, line, optimiser)
            train(model, optimizer, scheduler=decay(optimizer))
            optimizer.flush()
            equal(single, model)


def test_groups_with_settings_of_their_own():
    def two(parameters):
        parameters = list(parameters)
        return torch.optim.SGD([{"params": parameters[:3], "lr": 0.3}, {"params": parameters[3:]}], lr=0.1)

    for line in ("schedule=wfbp", "schedule=p3"):
        model = made()
        optimizer = wrapped(model, line, two)
        train(model, optimizer)
        optimizer.flush()
        equal(reference(two), model)


def test_several_backward_passes():
    for line in ("schedule=wfbp", "schedule=dear"):
        model = made()
        optimizer = wrapped(model, line, backward_passes_per_step=2)
        train(model, optimizer, passes=2)
        optimizer.flush()
        equal(reference(), model)
    model = made()
    train(model, wrapped(model, "schedule=wfbp"), passes=2)  # each is averaged, as in DDP
    equal(reference(), model)
    model = made()
    optimizer = wrapped(model, "schedule=dear")
    train(model, optimizer, range(1))
    pair = batch(0)
    loss_of(model, pair).backward()
    cases.refused("for several backward passes a step give backward_passes_per_step", loss_of(model, pair).backward)
    cases.refused("zero_grad() was called after backward()", optimizer.zero_grad)
    optimizer.step()


def test_clipping_after_synchronize():
    single, model = made(), made()
    plain, optimizer = sgd(single.parameters()), wrapped(model, "schedule=dear")
    for step in range(STEPS):
        for one, net, whole in ((plain, single, True), (optimizer, model, False)):
            pair = batch(step)
            one.zero_grad(set_to_none=True)
            loss_of(net, pair if whole else torch.stack([part(pair[0]), part(pair[1])])).backward()
            if one is optimizer:
                optimizer.synchronize()
            torch.nn.utils.clip_grad_norm_(net.parameters(), 0.1)
            one.step()
    equal(single, model)


def test_sum():
    model, single = made(), made()
    train(model, wrapped(model, op=gw.Sum))
    optimizer = sgd(single.parameters())
    for step in range(STEPS):
        optimizer.zero_grad(set_to_none=True)
        (loss_of(single, batch(step)) * gw.size()).backward()
        optimizer.step()
    equal(single, model, 1e-7)


class Branches(torch.nn.Module):
    """`never` is not used at all, `some` by the last rank only."""

    def __init__(self):
        super().__init__()
        self.always, self.some, self.never = (torch.nn.Linear(4, 4) for _ in range(3))

    def forward(self, x, with_some):
        y = self.always(x)
        return self.some(y) if with_some else y


def test_parameters_that_are_not_used():
    for line in ("schedule=wfbp", "schedule=dear"):
        single, model = made(Branches), made(Branches)
        plain, optimizer = sgd(single.parameters()), wrapped(model, line)
        for step in range(STEPS):
            x = torch.arange(4.0).double() + step
            plain.zero_grad(set_to_none=True)
            optimizer.zero_grad(set_to_none=True)
            (sum(single(x, r == gw.size() - 1).square().mean() for r in range(gw.size())) / gw.size()).backward()
            model(x, gw.rank() == gw.size() - 1).square().mean().backward()
            plain.step()
            optimizer.step()
        optimizer.flush()
        equal(single, model)  # weight decay has not changed unused parameters
        agree(model)


def test_a_module_frozen_and_thawed_midway():
    for line in ("schedule=wfbp", "schedule=dear"):
        single, model = made(), made()
        single.wide.requires_grad_(False)
        model.wide.requires_grad_(False)  # and frozen when the optimiser is made
        plain, optimizer = sgd(single.parameters()), wrapped(model, line)
        for step in range(6):
            for net, one, whole in ((single, plain, True), (model, optimizer, False)):
                net.wide.requires_grad_(step >= 4)
                net.norm.requires_grad_(step < 2)
                train(net, one, [step], whole)
        optimizer.flush()
        equal(single, model)


def test_half_precision_and_mixed_types():
    class Mixed(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.a = torch.nn.Linear(8, 8)
            self.b = torch.nn.Linear(8, 8).to(torch.bfloat16)
            self.c = torch.nn.Linear(8, 3)
            self.d = torch.nn.Parameter(torch.ones(3, dtype=torch.float16))

        def forward(self, x):
            return self.c(self.b(self.a(x).to(torch.bfloat16)).float()) * self.d.float()

    for line in ("schedule=wfbp", "schedule=dear compress=topk"):
        torch.manual_seed(1)
        model = Mixed()
        optimizer = wrapped(model, line)
        for step in range(3):
            optimizer.zero_grad(set_to_none=True)
            model(torch.randn(2, 8, generator=torch.Generator().manual_seed(gw.rank()))).square().mean().backward()
            optimizer.step()
        optimizer.flush()
        agree(model)
        assert model.b.weight.dtype == torch.bfloat16 and model.d.dtype == torch.float16


def test_channels_last_and_staging():
    def net():
        torch.manual_seed(5)
        return torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU(inplace=True),
                                   torch.nn.Flatten(), torch.nn.Linear(8 * 9, 2))

    def run(model, one):
        for step in range(STEPS):
            x = torch.randn(4, 3, 5, 5, generator=torch.Generator().manual_seed(step))
            one.zero_grad(set_to_none=True)
            model(x).square().mean().backward()
            one.step()
        return model

    plain = net()
    single = run(plain, sgd(plain.parameters()))
    for staged in ("", "always"):
        for line in ("schedule=wfbp", "schedule=p3"):
            os.environ["GRADWIRE_STAGE"] = staged
            model = net().to(memory_format=torch.channels_last)
            optimizer = wrapped(model, line)
            run(model, optimizer)
            optimizer.flush()
            equal(single, model, 1e-5)
    del os.environ["GRADWIRE_STAGE"]


def test_zeroing_in_place_and_gradients_in_their_buffer():
    model = made()
    optimizer = wrapped(model, "schedule=wfbp")
    train(model, optimizer, range(2))
    at = {n: p.grad.data_ptr() for n, p in model.named_parameters()}
    for step in range(2, STEPS):
        optimizer.zero_grad(set_to_none=False)
        pair = batch(step)
        loss_of(model, torch.stack([part(pair[0]), part(pair[1])])).backward()
        optimizer.step()
        assert at == {n: p.grad.data_ptr() for n, p in model.named_parameters()}
    equal(reference(), model)


def test_codecs_learn_and_ranks_stay_the_same():
    start = sum(loss_of(made(dtype=torch.float32), batch(s)).item() for s in range(STEPS))
    for codec in ("fp16", "bf16", "int8", "onebit", "qsgd", "terngrad", "topk:ratio=0.1", "randomk:ratio=0.2",
                  "dgc:ratio=0.1", "powersgd:rank=2", "doublesqueeze"):
        for schedule in ("wfbp", "p3"):
            model = made(dtype=torch.float32)
            optimizer = wrapped(model, f"compress={codec} schedule={schedule}",
                                lambda p: torch.optim.SGD(p, lr=0.05 if "dgc" in codec else 0.2))
            for _ in range(4):
                train(model, optimizer)
            optimizer.flush()
            agree(model)
            assert sum(loss_of(model, batch(s)).item() for s in range(STEPS)) < 0.98 * start, codec


def test_state_holds_the_residuals():
    lines = ("compress=topk:ratio=0.05 schedule=wfbp", "compress=onebit schedule=p3", "schedule=dear",
             "sync=periodic:every=3,outer=0.7")
    for line in lines:
        straight, broken = made(dtype=torch.float32), made(dtype=torch.float32)
        optimizer = wrapped(straight, line)
        train(straight, optimizer, range(8))
        optimizer.flush()
        first = wrapped(broken, line)
        train(broken, first, range(4))
        saved = copy.deepcopy(first.state_dict())
        assert ("state" in saved["gradwire"]) and saved["gradwire"]["steps"] == 4
        fresh = made(dtype=torch.float32)
        fresh.load_state_dict(broken.state_dict())
        second = wrapped(fresh, line)
        second.load_state_dict(saved)
        train(fresh, second, range(4, 8))
        second.flush()
        for (name, a), b in zip(straight.named_parameters(), fresh.parameters()):
            assert torch.equal(a, b), (line, name)


def test_local_steps():
    every, model = 3, made(dtype=torch.float32)
    optimizer = wrapped(model, f"sync=periodic:every={every}")
    train(model, optimizer, range(2 * every))
    optimizer.flush()
    copies = [made(dtype=torch.float32) for _ in range(gw.size())]
    plain = [sgd(c.parameters()) for c in copies]
    for step in range(2 * every):
        for r, (net, one) in enumerate(zip(copies, plain)):
            pair = batch(step)[:, r * BATCH:(r + 1) * BATCH]
            one.zero_grad(set_to_none=True)
            loss_of(net, pair).backward()
            one.step()
        if step % every == every - 1:
            with torch.no_grad():
                for same in zip(*(c.parameters() for c in copies)):
                    mean = torch.stack([p.detach() for p in same]).mean(0)
                    for p in same:
                        p.copy_(mean)
    equal(copies[0], model, 1e-4)
    agree(model)


def test_delayed():
    warm, steps, model = 2, 6, made(dtype=torch.float32)
    optimizer = wrapped(model, f"sync=delayed:warmup={warm}")
    train(model, optimizer, range(steps))
    optimizer.flush()
    agree(model)
    shared, ahead = made(dtype=torch.float32), [made(dtype=torch.float32) for _ in range(gw.size())]
    plain = sgd(shared.parameters())
    for step in range(steps):
        plain.zero_grad()
        for r, net in enumerate(ahead):  # each on its own weights, then a passing update of the shared ones
            net.zero_grad()
            loss_of(net, batch(step)[:, r * BATCH:(r + 1) * BATCH]).backward()
            for p, q in zip(shared.parameters(), net.parameters()):
                p.grad = q.grad / gw.size() + (0 if p.grad is None else p.grad)
                q.data.copy_(p.data - 0.2 * q.grad)
        plain.step()
        if step < warm:
            for net in ahead:
                net.load_state_dict(shared.state_dict())
    equal(shared, model, 1e-4)
    cases.refused("no average gradient", (train(model, optimizer, range(1)), optimizer.synchronize)[1])


def plain_sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.2)


def test_servers_that_keep_the_weights():
    start = sum(loss_of(made(dtype=torch.float32), batch(s)).item() for s in range(STEPS))
    single = reference(plain_sgd, dtype=torch.float32)
    for servers in {1, gw.size()}:
        model = made(dtype=torch.float32)
        optimizer = wrapped(model, f"arch=ps:servers={servers} sync=ssp:staleness=0", plain_sgd)
        train(model, optimizer)
        optimizer.flush()
        equal(single, model, 1e-4)  # a push of each worker is as good as one of their mean
        agree(model)
        for line in ("sync=asp", "sync=ssp:staleness=2 schedule=p3", "sync=backup" if gw.size() > 1 else "sync=asp"):
            model = made(dtype=torch.float32)
            optimizer = wrapped(model, f"arch=ps:servers={servers} {line}", plain_sgd)
            for _ in range(4):
                train(model, optimizer)
            optimizer.flush()
            optimizer.detach()  # a rank that backup left behind must not wait for ranks that have no more steps
            assert sum(loss_of(model, batch(s)).item() for s in range(STEPS)) < 0.98 * start, line


def test_workers_share_the_rate_under_asp():
    """Each update is made with a part of the rate. A part of the gradient would cancel in Adam."""
    for servers in {1, gw.size()}:
        torch.manual_seed(3)
        model = torch.nn.Linear(200, 200, bias=False)
        start = model.weight.detach().clone()
        optimizer = wrapped(model, f"arch=ps:servers={servers} sync=asp", lambda p: torch.optim.Adam(p, lr=0.01))
        for _ in range(20):
            optimizer.zero_grad()
            model(torch.ones(1, 200)).sum().backward()
            optimizer.step()
            optimizer.flush()
            gw.barrier()  # so that at most the others' last pushes are missing
        assert abs((start - model.weight).mean().item() / 0.2 - 1) < 0.06
        optimizer.detach()


class Whole(torch.optim.SGD):
    """Needs whole parameters, for a norm of them for example."""

    def step(self, closure=None):
        assert all(p.dim() == 2 for group in self.param_groups for p in group["params"])
        return super().step(closure)


def test_state_of_servers():
    """All ranks have the same data, so that their order does not matter. The matrix is cut between servers."""
    def go(model, optimizer, steps):
        for step in steps:
            optimizer.zero_grad()
            model(torch.randn(4, 200, generator=torch.Generator().manual_seed(step))).square().mean().backward()
            optimizer.step()
        optimizer.flush()
        return model

    def matrix():
        torch.manual_seed(3)
        return torch.nn.Linear(200, 200, bias=False)

    line, straight, broken = f"arch=ps:servers={gw.size()} sync=ssp:staleness=0", matrix(), matrix()
    go(straight, wrapped(straight, line), range(6))
    first = wrapped(broken, line)
    go(broken, first, range(3))
    saved = copy.deepcopy(first.state_dict())
    assert gw.size() == 1 or saved["gradwire"]["parts"]
    second = wrapped(broken, line)
    second.load_state_dict(saved)
    first.detach()
    assert torch.equal(straight.weight, go(broken, second, range(3, 6)).weight)
    if gw.size() > 1:
        model, cut = matrix(), matrix()
        whole = wrapped(model, line, lambda p: Whole(p, lr=0.1))
        go(model, whole, range(3))
        assert not whole.state_dict()["gradwire"]["parts"]
        go(cut, wrapped(cut, line, lambda p: torch.optim.SGD(p, lr=0.1)), range(3))
        assert torch.equal(model.weight, cut.weight)


def test_join():
    for line in ("schedule=wfbp", "schedule=dear"):
        model, single = made(), made()
        optimizer, plain = wrapped(model, line), sgd(single.parameters())
        mine = 2 + 2 * gw.rank()  # the first rank has the least
        train(model, optimizer, range(mine))
        last = gw.join()
        optimizer.flush()
        assert last == gw.size() - 1
        for step in range(2 * gw.size()):
            plain.zero_grad(set_to_none=True)
            pair = batch(step)
            active = [r for r in range(gw.size()) if step < 2 + 2 * r]
            sum(loss_of(single, pair[:, r * BATCH:(r + 1) * BATCH]) / gw.size() for r in active).backward()
            plain.step()
        equal(single, model)
        optimizer.detach()
        del optimizer


def test_refusals_name_the_parameter():
    table = torch.nn.Embedding(5, 2, sparse=True)
    optimizer = wrapped(table, make_optimizer=lambda p: torch.optim.SGD(p, lr=0.1))
    cases.refused('gradient of parameter "weight" is sparse', table(torch.tensor([1])).sum().backward)
    optimizer.detach()
    model = torch.nn.Linear(2, 2 + min(gw.rank(), 1), bias=False)
    other = wrapped(model)
    cases.refused('rank 1 "weight" (float32 of shape [3, 2])', model(torch.ones(2)).sum().backward)
    other.detach()
    cases.refused("not among named_parameters", gw.DistributedOptimizer, torch.optim.SGD(model.parameters(), lr=1), [])
    cases.refused("has to be Average or Sum", gw.DistributedOptimizer, torch.optim.SGD(model.parameters(), lr=1),
                  op=gw.Max)
    half = torch.nn.Linear(2, 2).to(torch.bfloat16)
    odd = wrapped(half, "sync=periodic")
    cases.refused("a reducer updates only f32 weights", half(torch.ones(2, dtype=torch.bfloat16)).sum().backward)
    odd.detach()
    strange = wrapped(torch.nn.Linear(2, 2), "schedule=daer")
    cases.refused('did you mean "dear"', strange.step)


cases.run(globals())
