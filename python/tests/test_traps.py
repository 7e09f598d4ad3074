"""What a script for one process or for DDP does between backward(), step() and the next forward pass: it computes what
one process computes, or it is refused at once."""
import copy
import io
import warnings

import torch
import torch.utils.checkpoint

import cases
import gradwire.torch as gw

STEPS = 4
DEFERS = "schedule=dear", "schedule=p3"


def made():
    torch.manual_seed(4)
    return torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, 8), torch.nn.Tanh(),
                               torch.nn.Linear(8, 2)).double()


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9, weight_decay=0.01)


def wrapped(model, line="schedule=wfbp", optimizer=None, **options):
    return gw.DistributedOptimizer(optimizer or sgd(model), model.named_parameters(), strategy=line, **options)


def loss_of(model, step, rank):
    return model(torch.linspace(-1, 2, 3).double() * (1 + step) / (1 + rank)).square().mean()


def mean_loss(model, step):
    """What one process that has all data would use."""
    return sum(loss_of(model, step, rank) for rank in range(gw.size())) / gw.size()


def equal(a, b):
    for (name, x), y in zip(a.named_parameters(), b.parameters()):
        torch.testing.assert_close(x, y, rtol=1e-9, atol=1e-12, msg=lambda m, name=name: f"{name}: {m}")


def side_by_side(line, between=lambda model, optimizer: None, steps=STEPS, **options):
    """Trains with `between` called between backward() and step(), beside one process; yields (single, model, plain,
    optimizer) after each step."""
    single, model = made(), made()
    plain, optimizer = sgd(single), wrapped(model, line, **options)
    for step in range(steps):
        for net, one, loss in ((single, plain, mean_loss(single, step)),
                               (model, optimizer, loss_of(model, step, gw.rank()))):
            one.zero_grad()
            loss.backward()
            between(net, one)
            one.step()
        yield single, model, plain, optimizer
    optimizer.flush()
    equal(single, model)
    optimizer.detach()


def finish(steps):
    for _ in steps:
        pass


def test_clipping():
    def clip(model, _):
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), 0.05).item())

    for options in ({}, {"line": "schedule=fifo"}, {"line": None}):
        norms = []
        finish(side_by_side(**{"line": "schedule=wfbp", **options}, between=clip))
        for mine, theirs in zip(norms[::2], norms[1::2]):
            assert mine > 0.05 and abs(mine - theirs) < 1e-9, norms


def test_clipping_where_gradients_are_on_their_way():
    for line in DEFERS:
        for synchronizes in (True, False):
            def clip(model, one):
                if isinstance(one, gw.optimizer.Distributed):
                    cases.refused("Call optimizer.synchronize()", torch.nn.utils.clip_grad_norm_, model.parameters(), 1)
                    cases.refused("Call optimizer.synchronize()", torch.nn.utils.clip_grad_value_, model.parameters(), 1)
                    if synchronizes:
                        one.synchronize()
                if synchronizes:
                    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.05)

            finish(side_by_side(line, clip))
    model = made().float()
    optimizer = wrapped(model, "sync=periodic:every=2")
    for _ in range(2):
        model(torch.ones(3)).square().mean().backward()
        cases.refused("there is no average gradient", torch.nn.utils.clip_grad_norm_, model.parameters(), 1)
        optimizer.step()
    optimizer.detach()


def test_a_gradient_scaler():
    if not hasattr(torch.amp, "GradScaler"):  # torch 1.13
        return
    for line in ("schedule=wfbp", "schedule=dear"):
        single, model = made(), made()
        plain, optimizer = sgd(single), wrapped(model, line)
        scalers = [torch.amp.GradScaler("cpu", init_scale=1024.0) for _ in range(2)]
        for step in range(STEPS):
            bad = float("inf") if step == 2 else 1.0  # on one rank only
            losses = mean_loss(single, step) * bad, loss_of(model, step, gw.rank()) * (bad if gw.rank() == 0 else 1)
            for scaler, net, one, loss in zip(scalers, (single, model), (plain, optimizer), losses):
                one.zero_grad()
                scaler.scale(loss).backward()
                if one is optimizer and line == "schedule=dear":
                    cases.refused("Call optimizer.synchronize()", scaler.step, one)
                    scaler._per_optimizer_states.clear()
                    one.synchronize()
                scaler.unscale_(one)
                torch.nn.utils.clip_grad_norm_(net.parameters(), 0.5)
                scaler.step(one)
                scaler.update()
            assert scalers[0].get_scale() == scalers[1].get_scale()
        optimizer.flush()
        equal(single, model)
        optimizer.detach()


def not_finite(line, step, factor, **options):
    """Makes steps, the second of which has a loss that is not a number, and calls `step` there."""
    model = made().float()
    optimizer = wrapped(model, line, **options)
    for turn in range(3):
        optimizer.zero_grad()
        loss = model(torch.ones(3) / (1 + gw.rank())).square().mean()
        (loss * (factor if turn == 1 else 1)).backward()
        if turn == 1:
            step(optimizer)
        else:
            optimizer.step()
    optimizer.flush()
    optimizer.detach()
    return model


def test_a_gradient_that_is_not_finite():
    """step() raises on the rank that it came from, before an update; who goes on can make the next step."""
    def refused(optimizer):
        error = cases.refused(f'rank {gw.rank()}: the gradient of parameter "', optimizer.step)
        assert error.status == "NOT_FINITE" and "is not finite in step 1; " in str(error)

    def warned(optimizer):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            optimizer.step()
        assert any("is not finite in step 1" in str(one.message) for one in said)

    for line in ("schedule=wfbp", "schedule=dear", "compress=topk"):
        model = not_finite(line, refused, float("nan"))
        assert all(p.isfinite().all() for p in model.parameters())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the step after it
        not_finite("schedule=wfbp", warned, float("inf"), nonfinite="warn")
    not_finite("schedule=wfbp", lambda optimizer: optimizer.step(), float("inf"), nonfinite="ignore")
    cases.refused("nonfinite is 'stop', but has to be one of raise, warn, ignore", wrapped, made(), nonfinite="stop")


def test_a_gradient_that_is_not_finite_inside_the_reducer():
    model = made().float()
    optimizer = wrapped(model, "sync=periodic")
    for number in (1.0, float("nan")):
        loss = model(torch.ones(3)).square().mean() * number
        if number != 1:
            cases.refused("is not finite in step 1 (element", loss.backward)
            break
        loss.backward()
        optimizer.step()
    gw.allgather_object(0)


class Branches(torch.nn.Module):
    """The second branch has few parameters, and comes last."""
    def __init__(self):
        super().__init__()
        torch.manual_seed(4)
        self.stem, self.wide, self.narrow = (torch.nn.Linear(3, 8), torch.nn.Linear(8, 64), torch.nn.Linear(8, 2))
        self.end = torch.nn.Linear(64, 2)
        self.double()

    def forward(self, x):
        x = self.stem(x).tanh()
        return self.end(self.wide(x).tanh()) + self.narrow(x)


def test_a_graph_with_branches():
    graph = {"narrow.weight": ["stem.bias"], "end.weight": ["wide.bias"]}
    for mode in ("tic", "tac"):
        single, model = Branches(), Branches()
        plain, optimizer = sgd(single), wrapped(model, f"schedule=tictac:mode={mode}", after=graph)
        for step in range(8):  # tac measures five, then sends in another order
            for one, loss in ((plain, mean_loss(single, step)), (optimizer, loss_of(model, step, gw.rank()))):
                one.zero_grad()
                loss.backward()
                one.step()
        optimizer.flush()
        equal(single, model)
        optimizer.detach()
    cases.refused('after names "wide", and there is no such parameter', wrapped, model, after={"wide": []})


def test_gradients_after_a_step():
    for single, model, _, _ in side_by_side("schedule=wfbp"):
        for a, b in zip(single.parameters(), model.parameters()):
            torch.testing.assert_close(a.grad, b.grad)
    for step, (single, model, _, optimizer) in enumerate(side_by_side("schedule=dear")):
        cases.refused('parameter "0.weight" cannot be used here', model[0].weight.grad.norm)
        assert "on its way" in repr(model[0].weight.grad)
        if step % 2:
            optimizer.flush()
            for a, b in zip(single.parameters(), model.parameters()):
                torch.testing.assert_close(a.grad, b.grad)


def test_steps_without_zero_grad():
    """Gradients add up, in every process."""
    for line in ("schedule=wfbp",) + DEFERS:
        single, model = made(), made()
        plain, optimizer = sgd(single), wrapped(model, line)
        for step in range(STEPS):
            mean_loss(single, step).backward()
            loss_of(model, step, gw.rank()).backward()
            plain.step()
            optimizer.step()
            if step == 2:
                single.zero_grad(set_to_none=False)
                model.zero_grad(set_to_none=False)
        optimizer.flush()
        equal(single, model)
        optimizer.detach()


def test_several_backward_passes_over_parts():
    class Heads(torch.nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(6)
            self.heads = torch.nn.ModuleList(torch.nn.Linear(3, 2).double() for _ in range(2))

    for line in ("schedule=wfbp",) + DEFERS:
        single, model = Heads(), Heads()
        plain, optimizer = sgd(single), wrapped(model, line)
        for step in range(STEPS):
            plain.zero_grad()
            optimizer.zero_grad()
            for a, b in zip(single.heads, model.heads):
                mean_loss(a, step).backward()
                loss_of(b, step, gw.rank()).backward()
            plain.step()
            optimizer.step()
        optimizer.flush()
        equal(single, model)
        optimizer.detach()


def test_two_optimisers_in_one_pass():
    single, model = made(), made()
    plain = [sgd(part) for part in (single[:3], single[3:])]
    both = [wrapped(part, line) for part, line in ((model[:3], "schedule=wfbp"), (model[3:], "schedule=wfbp"))]
    for step in range(STEPS):
        for net, ones, loss in ((single, plain, mean_loss(single, step)), (model, both, loss_of(model, step, gw.rank()))):
            net.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(net.parameters(), 0.05)
            for one in ones:
                one.step()
    equal(single, model)
    for one in both:
        one.detach()


def test_reentrant_checkpoints():
    class Checkpointed(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.rest = made()[:2], made()[2:]

        def forward(self, x):
            x = x.clone().requires_grad_()
            for part in (self.first, self.rest):
                x = torch.utils.checkpoint.checkpoint(part, x, use_reentrant=True)
            return x

    for line in ("schedule=wfbp", "schedule=dear"):
        single, model = Checkpointed(), Checkpointed()
        plain, optimizer = sgd(single), wrapped(model, line)
        for step in range(STEPS):
            plain.zero_grad()
            optimizer.zero_grad()
            mean_loss(lambda x: single.rest(single.first(x)), step).backward()
            loss_of(model, step, gw.rank()).backward()
            if line == "schedule=dear":
                optimizer.synchronize()
            for net, one in ((single, plain), (model, optimizer)):
                torch.nn.utils.clip_grad_norm_(net.parameters(), 0.05)
                one.step()
        assert optimizer.step_number() == STEPS  # one exchange each
        optimizer.flush()
        equal(single, model)
        optimizer.detach()


def test_a_schedule_made_before_wrapping():
    single, model = made(), made()
    plain, given = sgd(single), sgd(model)
    schedules = [torch.optim.lr_scheduler.StepLR(one, 1, 0.5) for one in (plain, given)]
    optimizer = wrapped(model, optimizer=given)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for step in range(STEPS):
            for one, schedule, loss in ((plain, schedules[0], mean_loss(single, step)),
                                        (optimizer, schedules[1], loss_of(model, step, gw.rank()))):
                one.zero_grad()
                loss.backward()
                one.step()
                schedule.step()
            if step == 1:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    equal(single, model)
    optimizer.detach()


def test_states_of_the_model_between_steps():
    if not hasattr(torch.nn.Module, "register_state_dict_pre_hook"):  # torch 1.13
        return
    for line in DEFERS:
        for step, (single, model, _, _) in enumerate(side_by_side(line)):
            assert any(slot.pending for one in gw.world.world().living() for slot in one._slots)
            if step % 2:
                file = io.BytesIO()
                torch.save(model.state_dict(), file)
                file.seek(0)
                other = made()
                other.load_state_dict(torch.load(file))
                equal(single, other)
            else:
                with torch.no_grad():
                    x = torch.ones(3).double()
                    torch.testing.assert_close(model.eval()(x), single(x))
                model.train()
    # What is loaded is not updated with a gradient of before.
    for step, (single, model, _, _) in enumerate(side_by_side("schedule=dear")):
        if step == 1:
            for net in (single, model):
                net.load_state_dict({name: value * 0.5 for name, value in made().state_dict().items()})
            equal(single, model)


def test_copies_of_a_model():
    for step, (single, model, _, optimizer) in enumerate(side_by_side("schedule=dear")):
        if step == 1:
            optimizer.flush()
            file = io.BytesIO()
            torch.save(model, file)
            file.seek(0)
            for other in (copy.deepcopy(model), torch.load(file, weights_only=False)):
                equal(single, other)
                other.load_state_dict(other.state_dict())


def test_parameters_used_without_their_module():
    model = made()
    optimizer = wrapped(model, "schedule=dear")
    loss_of(model, 0, gw.rank()).backward()
    optimizer.step()
    optimizer.zero_grad()
    loss = model[0].weight.square().sum()
    cases.refused('parameter "0.weight" was used before its update', loss.backward)
    optimizer.detach()


def test_codecs_leave_other_types_alone():
    def said(dtype, codec):
        model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 4)).to(dtype)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            optimizer = wrapped(model, f"compress={codec} schedule=wfbp")
            for _ in range(2):
                optimizer.zero_grad()
                model(torch.ones(8, dtype=dtype)).float().square().mean().backward()
                optimizer.step()
        optimizer.detach()
        return [str(w.message) for w in caught if "compress" in str(w.message)]

    for dtype in (torch.bfloat16, torch.float16, torch.float64):
        (sentence,) = said(dtype, "topk:ratio=0.1")
        assert '"0.weight"' in sentence and "2 parameters" in sentence and "uncompressed" in sentence, sentence
    assert not said(torch.float32, "topk:ratio=0.1") and not said(torch.bfloat16, "fp16")
    assert not said(torch.bfloat16, "none") and said(torch.float64, "bf16")


cases.run(globals())
