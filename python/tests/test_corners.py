"""Unusual training loops, and arguments of Horovod's optimisers."""
import contextlib

import torch

import cases
import gradwire.torch as gw


def made():
    torch.manual_seed(4)
    return torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2)).double()


def wrapped(model, **options):
    return gw.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), model.named_parameters(),
                                   **options)


def loss_of(model, step=0, rank=None):
    rank = gw.rank() if rank is None else rank
    return model(torch.ones(3).double() * (1 + step) / (1 + rank)).square().mean()


def train(model, optimizer, steps=3):
    for step in range(steps):
        optimizer.zero_grad()
        loss_of(model, step).backward()
        optimizer.step()


def single(steps=range(3)):
    model = made()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for step in steps:
        optimizer.zero_grad(set_to_none=True)
        (sum(loss_of(model, step, r) for r in range(gw.size())) / gw.size()).backward()
        optimizer.step()
    return model


def equal(a, b, tolerance=1e-9):
    for x, y in zip(a.parameters(), b.parameters()):
        torch.testing.assert_close(x, y, rtol=tolerance, atol=tolerance)


@contextlib.contextmanager
def closing(optimizer):
    yield optimizer
    optimizer.detach()


def test_groups_added_before_the_first_step():
    model, strange = made(), {"params": [torch.nn.Parameter(torch.ones(1))]}
    first = torch.optim.SGD(model[0].parameters(), lr=0.1, momentum=0.9)
    with closing(gw.DistributedOptimizer(first, model.named_parameters())) as optimizer:
        cases.refused("not among named_parameters", optimizer.add_param_group, strange)
        optimizer.add_param_group({"params": list(model[1].parameters())})
        train(model, optimizer)
        cases.refused("before the first step", optimizer.add_param_group, strange)
    equal(single(), model)


def test_a_graph_of_the_gradients():
    model = made()
    with closing(wrapped(model)) as optimizer:
        for step in range(3):
            optimizer.zero_grad()
            loss_of(model, step).backward(create_graph=True)
            optimizer.step()
    equal(single(), model)


def test_a_step_left_out_after_synchronize():
    for line in ("schedule=wfbp", "schedule=dear"):
        for zero in ("optimizer", "model"):
            model = made()
            with closing(wrapped(model, strategy=line)) as optimizer:
                for step in range(4):
                    (optimizer if zero == "optimizer" else model).zero_grad()
                    loss_of(model, step).backward()
                    optimizer.synchronize()
                    if step != 1:  # as a GradScaler does
                        with optimizer.skip_synchronize():
                            optimizer.step()
                cases.refused("synchronize() has to be called before", optimizer.skip_synchronize().__enter__)
            equal(single((0, 2, 3)), model)
    model = made()
    with closing(wrapped(model, op=gw.Sum)) as optimizer:
        train(model, optimizer, 1)
        loss_of(model).backward()
        optimizer.synchronize()
        cases.refused("with op=Sum give backward_passes_per_step", loss_of(model).backward)
        optimizer.step()


def test_closures():
    for line in ("schedule=wfbp", "schedule=dear"):
        model = made()
        with closing(wrapped(model, strategy=line)) as optimizer:
            def closure(step):
                optimizer.zero_grad()
                loss = loss_of(model, step)
                loss.backward()
                return loss

            assert all(optimizer.step(lambda step=step: closure(step)).item() > 0 for step in range(3))
            optimizer.flush()
        equal(single(), model)


def test_parameters_without_elements():
    for line in ("schedule=wfbp", "schedule=dear", "compress=topk", "sync=periodic:every=2", "arch=ps"):
        model = made().float()
        model.none = torch.nn.Parameter(torch.empty(0, 4))
        with closing(wrapped(model, strategy=line)) as optimizer:
            for _ in range(3):
                optimizer.zero_grad()
                (model(torch.ones(3)).square().mean() + model.none.sum()).backward()
                optimizer.step()
            optimizer.flush()


def test_state_of_the_root_midway():
    model = made().float()
    with closing(wrapped(model, strategy="compress=topk:ratio=0.5")) as optimizer:
        for step in range(4):
            optimizer.zero_grad()
            model(torch.ones(3)).square().mean().backward()
            optimizer.step()
            if step == 1:
                optimizer.param_groups[0]["lr"] = 0.2 + gw.rank()
                gw.broadcast_optimizer_state(optimizer, 0)
        assert optimizer.param_groups[0]["lr"] == 0.2


def test_several_epochs_of_uneven_data():
    for line in ("schedule=wfbp", "schedule=dear"):
        model = made()
        with closing(wrapped(model, strategy=line)) as optimizer:
            for _ in range(3):
                train(model, optimizer, 1 + 2 * gw.rank())
                gw.join(0)
            optimizer.flush()
        for p in model.parameters():
            assert all(torch.equal(p, other) for other in gw.allgather_object(p.detach()))


def test_a_step_broken_off():
    """What would wait for the rest of it is refused; step() ends it."""
    class Breaks(torch.autograd.Function):
        @staticmethod
        def forward(_, x):
            return x.clone()

        @staticmethod
        def backward(_, gradient):
            raise ValueError("broken off")

    model = made()
    with closing(wrapped(model)) as optimizer:
        train(model, optimizer)
        try:
            model[1](Breaks.apply(model[0](torch.ones(3).double()))).mean().backward()
        except ValueError:
            pass
        cases.refused("step() or synchronize() has to come first", optimizer.state_dict)
        cases.refused("step() or synchronize() has to come first", optimizer.flush)
        optimizer.step()
        optimizer.state_dict()


def test_parameters_that_were_moved():
    model = made().float()
    with closing(wrapped(model, strategy="sync=periodic:every=2")) as optimizer:
        for step in range(3):
            optimizer.zero_grad()
            model(torch.ones(3)).square().mean().backward()
            if step == 2:
                before = model[0].weight.data
                model[0].weight.data = before.clone()
                cases.refused('"0.weight" lies elsewhere', optimizer.step)
                model[0].weight.data = before
            optimizer.step()


def test_optimisers_of_horovod():
    model = made().float()
    with closing(wrapped(model, compression=gw.Compression.fp16, op=gw.Average, gradient_predivide_factor=2.0,
                         backward_passes_per_step=1)) as optimizer:
        assert optimizer._strategy == "compress=fp16"
        cases.refused("is one already", gw.DistributedOptimizer, optimizer)
        for passes in (1, 2):
            optimizer.set_backward_passes_per_step(passes)
            optimizer.zero_grad()
            for _ in range(passes):
                model(torch.ones(3)).sum().backward()
            optimizer.step()
    cases.refused("no line of a strategy", wrapped, model, strategy=3)
    table = torch.nn.Embedding(5, 2, sparse=True)
    torch.nn.init.ones_(table.weight)
    plain = torch.optim.SGD(table.parameters(), lr=1.0)
    with closing(gw.DistributedOptimizer(plain, sparse_as_dense=True)) as optimizer:
        for _ in range(2):
            optimizer.zero_grad()
            table(torch.tensor([gw.rank()])).sum().backward()
            optimizer.step()
    assert table.weight[0, 0].item() == 1 - 2 / gw.size() and table.weight[4, 0].item() == 1


def shutdown_before_synchronize():
    handle = gw.allreduce_async(torch.ones(100000))
    gw.shutdown()
    cases.refused("shutdown() came before synchronize()", gw.synchronize, handle)
    cases.refused("shutdown() came before synchronize()", gw.poll, handle)


cases.run(globals())
shutdown_before_synchronize()
