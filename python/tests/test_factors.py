"""arch=sfb: factors of Linear layers against one process that has the joined batch, and what cannot travel as factors."""
import contextlib
import copy
import functools
import os
import warnings

import torch
import torch.nn.functional as F
from torch.nn.modules.module import register_module_forward_hook
from torch.utils.checkpoint import checkpoint

import cases
import gradwire.torch as gw
from gradwire._library import read_counters

WIDTH, BATCH, STEPS = 64, 4, 3


class Layers(torch.nn.Module):
    """Two Linear layers that are cheaper as factors, and one that is not."""

    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(WIDTH, WIDTH), torch.nn.Linear(WIDTH, WIDTH, bias=False)
        self.table, self.last = torch.nn.Embedding(9, WIDTH), torch.nn.Linear(WIDTH, 2)
        self.relu = torch.nn.ReLU(inplace=True)

    def forward(self, x):
        return self.last(self.relu(self.second(self.relu(self.first(x)))))


def loss(model, x):
    return model(x).square().mean()


def three_dimensions(model, x):
    return model(x.reshape(-1, 2, WIDTH)).square().mean()


def several_calls(model, x):
    return model.first(torch.tanh(model.first(x))).square().mean() + model.last(x).square().mean()


def shared_weights(model, x):
    other = torch.nn.Linear(WIDTH, WIDTH, bias=False)
    other.weight = model.first.weight
    return other(torch.tanh(model.first(x))).square().mean()


def used_elsewhere(model, x):
    return loss(model, x) + model.first.weight.square().mean() + F.linear(x, model.second.weight).mean()


def tied_to_an_embedding(model, x):
    head = F.linear(model.table(torch.arange(BATCH)), model.table.weight)
    return loss(model, x) + head.square().mean()


def recomputed(model, x):
    y = checkpoint(model.first, x.requires_grad_(), use_reentrant=False)
    return model.last(checkpoint(model.second, torch.relu(y), use_reentrant=True)).square().mean()


def with_a_penalty(model, x):
    x = x.requires_grad_()
    slope, = torch.autograd.grad(loss(model, x), x, create_graph=True)
    return loss(model, x) + slope.square().sum()


def with_functional_calls(model, x):
    """Nothing that others compute may be kept, or be missing."""
    own = dict(model.named_parameters())
    of_weight, = torch.autograd.grad(loss(model, x), [model.first.weight])
    of_copy = torch.func.grad(lambda p: torch.func.functional_call(model, p, (x,)).square().mean())(own)["first.weight"]
    torch.testing.assert_close(of_weight, of_copy)
    mapped = torch.func.vmap(model)(x)
    return (mapped + torch.func.functional_call(model, {"first.bias": own["first.bias"] * 2}, (x,))).square().mean()


def half_precise(model, x):
    with torch.autocast("cpu", torch.bfloat16):
        return model(x).float().square().mean()


def with_hooks(model, x):
    doubles = model.first.register_forward_hook(lambda module, inputs, output: 2 * output)
    halves = model.second.weight.register_hook(lambda gradient: gradient / 2)
    backs = model.last.register_full_backward_hook(lambda *_: None)
    result = loss(model, x)
    doubles.remove()
    backs.remove()
    model.later = halves
    return result


USES = (loss, three_dimensions, several_calls, shared_weights, used_elsewhere, tied_to_an_embedding, recomputed,
        with_a_penalty, with_functional_calls, with_hooks)


def made():
    torch.manual_seed(3)
    return Layers()


def inputs(step):
    return torch.randn(gw.size(), BATCH, WIDTH, generator=torch.Generator().manual_seed(step))


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def wrapped(model, line, **options):
    return gw.DistributedOptimizer(sgd(model), model.named_parameters(), strategy=line, **options)


def alone(use, rows=lambda step, rank: BATCH, steps=STEPS):
    """What the mean over the ranks of their losses does."""
    model = made()
    optimizer = sgd(model)
    for step in range(steps):
        optimizer.zero_grad()
        for rank, x in enumerate(inputs(step)):
            if rows(step, rank):
                (use(model, x[:rows(step, rank)]) / gw.size()).backward()
                forget(model)
        optimizer.step()
    return model


def forget(model):
    if hasattr(model, "later"):
        model.later.remove()
        del model.later


def train(model, optimizer, use, rows=lambda step, rank: BATCH, steps=STEPS, **zeroing):
    for step in range(steps):
        optimizer.zero_grad(**zeroing)
        if rows(step, gw.rank()):
            use(model, inputs(step)[gw.rank()][:rows(step, gw.rank())]).backward()
            forget(model)
        optimizer.step()
    optimizer.flush()


def compare(single, model, tolerance=1e-5):
    for (name, x), y in zip(single.named_parameters(), model.named_parameters()):
        torch.testing.assert_close(x, y[1], rtol=tolerance, atol=tolerance, msg=lambda m, name=name: f"{name}: {m}")
        assert all(torch.equal(y[1], other) for other in gw.allgather_object(y[1].detach())), name


def room(optimizer):
    return {slot.name: slot.room for slot in optimizer._slots if slot.room}


def test_every_use_of_a_layer():
    warnings.simplefilter("ignore")
    for use in USES:
        single = alone(use)
        for line in ("arch=sfb schedule=wfbp", "arch=sfb schedule=dear"):
            model = made()
            optimizer = wrapped(model, line)
            train(model, optimizer, use)
            try:
                compare(single, model)
            except AssertionError as error:
                raise AssertionError(f"{use.__name__}, {line}: {error}") from None
            optimizer.detach()
    warnings.resetwarnings()


def test_a_hook_of_all_modules_that_changes_outputs():
    hook = register_module_forward_hook(lambda module, given, output: 0.7 * output)  # before the optimiser's
    model = made()
    optimizer = wrapped(model, "arch=sfb")
    train(model, optimizer, loss)
    assert len(room(optimizer)) == 2
    compare(alone(loss), model)
    optimizer.detach()
    hook.remove()


def test_factors_travel_and_nothing_is_multiplied():
    model, multiplied = made(), []
    optimizer = wrapped(model, "arch=sfb schedule=wfbp")
    train(model, optimizer, loss, steps=1)
    assert room(optimizer) == {"first.weight": BATCH, "second.weight": BATCH}, room(optimizer)
    for slot in optimizer._slots:
        if slot.room:
            slot.layer.multiply = multiplied.append
    before = read_counters(optimizer._reducer.handle).bytes_sent
    train(model, optimizer, loss, steps=1)
    assert not multiplied
    assert all(slot.parameter.grad is slot.view for slot in optimizer._slots if slot.name != "table.weight")
    sent = read_counters(optimizer._reducer.handle).bytes_sent - before  # the others are added in shared memory
    assert sent == 2 * BATCH * (WIDTH + WIDTH) * 4 * (gw.size() - 1), sent
    optimizer.detach()


def test_ranks_with_fewer_more_and_no_examples():
    def rows(step, rank):
        return (2, 1, 0, BATCH)[step] if rank == 0 else (3, 0, 2, 2)[step]

    for line in ("arch=sfb schedule=wfbp", "arch=sfb schedule=dear"):
        model = made()
        optimizer = wrapped(model, line)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            train(model, optimizer, loss, rows, 4)
        said = [str(w.message) for w in said if "arch=sfb" in str(w.message)]
        assert set(room(optimizer).values()) == {3}
        assert len(said) == (2 if gw.rank() == 0 else 0), said  # once for each layer
        assert all("have 4 rows, and there is room for the 3 of the first step" in s for s in said)
        compare(alone(loss, rows, 4), model)
        optimizer.detach()


def test_what_travels_whole_is_said():
    model = made()
    optimizer = wrapped(model, "arch=sfb")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        train(model, optimizer, used_elsewhere)
    assert not room(optimizer)
    assert any("2 weights of Linear layers have gradients that are no product of factors, and travel whole: "
               in str(w.message) for w in said), [str(w.message) for w in said]
    compare(alone(used_elsewhere), model)
    optimizer.detach()
    model = made()
    optimizer = wrapped(model, "arch=sfb")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        train(model, optimizer, lambda m, x: (used_elsewhere if optimizer.step_number() else loss)(m, x))
    assert len(room(optimizer)) == 2
    assert any('"first.weight" travels whole in this step: the weight is also used outside' in str(w.message)
               for w in said), [str(w.message) for w in said]
    optimizer.detach()


def test_accumulation_and_gradients_that_are_kept():
    warnings.simplefilter("ignore")
    single = alone(loss)
    model = made()
    optimizer = wrapped(model, "arch=sfb", backward_passes_per_step=2)
    for step in range(STEPS):
        optimizer.zero_grad()
        for half in inputs(step)[gw.rank()].chunk(2):
            (loss(model, half) / 2).backward()
            assert model.first.weight.grad is not None
        optimizer.step()
    assert not room(optimizer)
    compare(single, model)
    optimizer.detach()
    model = made()
    optimizer = wrapped(model, "arch=sfb")
    train(model, optimizer, loss, set_to_none=False)
    compare(single, model)
    optimizer.detach()
    model = made()
    optimizer = wrapped(model, "arch=sfb")  # another backward pass adds to the averages
    for step in range(STEPS):
        optimizer.zero_grad()
        for half in inputs(step)[gw.rank()].chunk(2):
            (loss(model, half) / 2).backward()
        optimizer.step()
    compare(single, model)
    optimizer.detach()
    warnings.resetwarnings()


def test_a_backward_pass_too_many_leaves_nothing():
    model = made()
    optimizer = wrapped(model, "arch=sfb schedule=dear")
    for step in range(STEPS):
        model.zero_grad()
        loss(model, inputs(step)[gw.rank()]).backward()
        if step == 1:
            cases.refused("a gradient from 2 backward passes", model.second(inputs(0)[gw.rank()]).sum().backward)
        optimizer.step()
    optimizer.flush()
    compare(alone(loss), model)
    optimizer.detach()


def test_autocast_and_copies():
    warnings.simplefilter("ignore")
    model = made()
    optimizer = wrapped(model, "arch=sfb")
    train(model, optimizer, half_precise)
    compare(alone(half_precise), model, 1e-2)
    optimizer.detach()
    optimizer = wrapped(model, "arch=sfb")
    train(model, optimizer, loss, steps=1)
    copied = copy.deepcopy(model)  # has no part in the optimiser
    copied.zero_grad()
    loss(copied, inputs(0)[0]).backward()
    assert copied.first.weight.grad is not None and not any(s.layer and s.layer.kept for s in optimizer._slots)
    optimizer.detach()
    model.zero_grad()
    loss(model, inputs(0)[0]).backward()
    assert model.first.weight.grad is not None
    warnings.resetwarnings()


def test_staging_and_other_strategies():
    single = alone(loss)
    for line, staged in (("arch=sfb schedule=p3", ""), ("arch=sfb schedule=wfbp", "always"),
                         ("arch=sfb:servers=1 schedule=p3", ""), ("arch=sfb sync=periodic:every=3", "")):
        os.environ["GRADWIRE_STAGE"] = staged
        model = made()
        optimizer = wrapped(model, line)
        train(model, optimizer, loss)
        if "periodic" not in line:
            compare(single, model)
            assert len(room(optimizer)) == 2
        optimizer.detach()
    del os.environ["GRADWIRE_STAGE"]


def test_compiled_models():
    """What torch.compile has traced gives whole gradients, also where factors had been seen before."""
    warnings.simplefilter("ignore")
    single = alone(loss)
    for midway, autograd in ((False, False), (True, False), (True, True)):
        model = made()
        optimizer = wrapped(model, "arch=sfb schedule=wfbp")
        train(model, optimizer, loss, steps=1) if midway else None
        compiler = functools.partial(torch.compile, backend="aot_eager")
        traced = model if autograd else compiler(model)
        with torch._dynamo.compiled_autograd._enable(compiler) if autograd else contextlib.nullcontext():
            for step in range(int(midway), STEPS):
                optimizer.zero_grad()
                loss(traced, inputs(step)[gw.rank()]).backward()
                optimizer.step()
        assert bool(room(optimizer)) == midway
        compare(single, model)
        optimizer.detach()
        torch._dynamo.reset()
    warnings.resetwarnings()


cases.run(globals())
