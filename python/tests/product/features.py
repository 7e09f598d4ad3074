"""What training scripts do around an optimiser: mixed precision, clipping, accumulation, groups, schedulers, closures,
several optimisers, saved states, and arguments of the wrapping."""
import os
import tempfile
import warnings

import torch
import torch.nn.functional as F
from torch import nn, optim
from torch.optim import lr_scheduler

import gradwire.torch as gw
from tests.product.models import float32
from tests.product.runner import Cases
from tests.product.runs import (CLIPPINGS, adam, run_alone, run_rank, scaler, sgd, step_clipped, step_in_parts,
                                step_plain, step_scaled, step_scheduled)
from tests.product.values import OUT, STEPS, WIDE, batch, close, loss_of, network, part, parts, state_of, weights
from tests.product.wrapping import LINES, MORE_LINES, trains_as_one, wrap, wrapped

cases = Cases()


# ---- mixed precision ----

@cases.case(line=MORE_LINES, half=("bfloat16", "float16"))
def autocast(line, half):
    """One process divides by the number of ranks before float16 rounds, among subnormal numbers."""
    def forward(model, pair, rank):
        with torch.autocast("cpu", getattr(torch, half)):
            return loss_of(model, pair)

    trains_as_one(line, float32, step=step_in_parts(forward), dtype=torch.float32, tolerance=1e-5)


@cases.case(line=LINES, overflows=(-1, 1))
def grad_scaler(line, overflows):
    run, single = trains_as_one(line, float32, step=step_scaled(False, True, overflows), dtype=torch.float32,
                                keep_after=scaler)
    close(run.kept.get_scale(), single.kept.get_scale())


@cases.case(line=LINES)
def grad_scaler_and_clipping(line):
    trains_as_one(line, float32, step=step_scaled(True, True), dtype=torch.float32, keep_after=scaler)


@cases.case(line=LINES)
def grad_scaler_without_synchronize(line):
    trains_as_one(line, float32, step=step_scaled(False, False, 1), dtype=torch.float32, keep_after=scaler)


# ---- clipping and gradients that scripts look at ----

@cases.case(line=MORE_LINES, clipping=CLIPPINGS)
def clipping(line, clipping):
    trains_as_one(line, step=step_clipped(CLIPPINGS[clipping], True))


@cases.case(line=LINES, clipping=CLIPPINGS)
def clipping_without_synchronize(line, clipping):
    trains_as_one(line, step=step_clipped(CLIPPINGS[clipping], False))


def gradients_of(model):
    return {n: p.grad.clone() for n, p in model.named_parameters()}


@cases.case(line=LINES)
def gradients_after_synchronize(line):
    def step(run, pair, number):
        run.optimizer.zero_grad()
        loss_of(run.model, pair).backward()
        if not run.alone:
            run.optimizer.synchronize()
        seen[run.alone].append(gradients_of(run.model))
        run.optimizer.step()

    seen = {True: [], False: []}
    trains_as_one(line, step=step)
    close(seen[False], seen[True])


@cases.case(when=("before", "after"))
def gradients_that_a_logger_sees(when):
    """Before and after step(), in every step: as with DDP."""
    def step(run, pair, number):
        run.optimizer.zero_grad()
        loss_of(run.model, pair).backward()
        if when == "before":
            seen[run.alone].append(gradients_of(run.model))
        run.optimizer.step()
        if when == "after":
            seen[run.alone].append(gradients_of(run.model))

    seen = {True: [], False: []}
    trains_as_one("schedule=wfbp", step=step)
    close(seen[False], seen[True])


@cases.case(line=LINES)
def hooks_of_gradients(line):
    def make():
        model = network()
        model[0].weight.register_hook(lambda g: 3 * g)
        model[3].bias.register_hook(lambda g: 0.5 * g)
        return model

    trains_as_one(line, make)


@cases.case(line=LINES)
def gradient_penalty(line):
    """Backward through a gradient: create_graph."""
    def forward(model, pair, rank):
        x = pair[0].clone().requires_grad_(True)
        y = model(x)
        slope, = torch.autograd.grad(y.square().mean(), x, create_graph=True)
        return F.mse_loss(y, pair[1]) + slope.square().sum()

    trains_as_one(line, step=step_in_parts(forward))


# ---- accumulation ----

@cases.case(line=MORE_LINES, passes=(2, 4))
def accumulation(line, passes):
    def step(run, pair, number):
        run.optimizer.zero_grad()
        for piece in zip(*(t.chunk(passes) for t in pair)):
            (loss_of(run.model, piece) / passes).backward()
        run.optimizer.step()

    trains_as_one(line, step=step, wrapping={"backward_passes_per_step": passes})


@cases.case(line=LINES)
def two_losses_of_one_step(line):
    def step(run, pair, number):
        run.optimizer.zero_grad()
        loss_of(run.model, pair).backward()
        run.model(pair[0]).square().mean().backward()
        run.optimizer.step()

    trains_as_one(line, step=step, wrapping={"backward_passes_per_step": 2})


@cases.case(line=LINES)
def losses_added_before_backward(line):
    def forward(model, pair, rank):
        return loss_of(model, pair) + 0.1 * model(pair[0] + 1).square().mean()

    trains_as_one(line, step=step_in_parts(forward))


# ---- groups and schedulers ----

@cases.case(line=MORE_LINES)
def parameter_groups(line):
    def groups(parameters):
        parameters = list(parameters)
        return optim.AdamW([{"params": parameters[:2], "lr": 0.05}, {"params": parameters[2:5], "weight_decay": 0.5},
                            {"params": parameters[5:], "betas": (0.5, 0.9)}], lr=0.01)

    trains_as_one(line, make_optimizer=groups)


@cases.case(line=LINES)
def group_added_to_the_wrapped_optimiser(line):
    def some(parameters):
        return sgd(list(parameters)[:4])

    def step(run, pair, number):
        if number == 0:
            run.optimizer.add_param_group({"params": list(run.model.parameters())[4:], "lr": 0.05})
        step_plain(run, pair, number)

    trains_as_one(line, make_optimizer=some, step=step)


SCHEDULERS = {
    "StepLR": lambda o: lr_scheduler.StepLR(o, 1, 0.5),
    "cosine": lambda o: lr_scheduler.CosineAnnealingLR(o, STEPS),
    "OneCycleLR": lambda o: lr_scheduler.OneCycleLR(o, 0.5, total_steps=STEPS + 1),
    "warm-up": lambda o: lr_scheduler.SequentialLR(o, [lr_scheduler.LinearLR(o, 0.1, 1.0, 2),
                                                       lr_scheduler.ExponentialLR(o, 0.5)], [2]),
}


@cases.case(line=LINES, when=("before", "after"), scheduler=SCHEDULERS)
def scheduler_of_the_rate_made(line, when, scheduler):
    """Before or after wrapping; torch does not warn of a wrong order."""
    with warnings.catch_warnings():
        warnings.filterwarnings("error", ".*lr_scheduler.step.*")
        run, single = trains_as_one(line, step=step_scheduled, **{f"keep_{when}": SCHEDULERS[scheduler]})
    close(run.optimizer.param_groups[0]["lr"], single.optimizer.param_groups[0]["lr"])


@cases.case(line=LINES)
def rate_set_by_hand(line):
    def step(run, pair, number):
        run.optimizer.param_groups[0]["lr"] = 0.3 / (number + 1)
        step_plain(run, pair, number)

    trains_as_one(line, step=step)


# ---- zeroing, closures, several optimisers ----

@cases.case(line=MORE_LINES, to_none=(True, False))
def zero_grad(line, to_none):
    def step(run, pair, number):
        run.optimizer.zero_grad(set_to_none=to_none)
        loss_of(run.model, pair).backward()
        run.optimizer.step()

    trains_as_one(line, step=step)


@cases.case(line=LINES, to_none=(True, False))
def zero_grad_of_the_model(line, to_none):
    def step(run, pair, number):
        loss_of(run.model, pair).backward()
        run.optimizer.step()
        run.model.zero_grad(set_to_none=to_none)

    trains_as_one(line, step=step)


@cases.case(line=LINES)
def closure(line):
    def step(run, pair, number):
        def evaluate():
            run.optimizer.zero_grad()
            loss = loss_of(run.model, pair)
            loss.backward()
            return loss
        loss = run.optimizer.step(evaluate)
        assert isinstance(loss, torch.Tensor)

    trains_as_one(line, step=step)


@cases.case(line=MORE_LINES)
def two_optimisers_of_one_model(line):
    def trained(alone):
        model = network()
        both = (sgd(list(model.parameters())[:3]), adam(list(model.parameters())[3:]))
        if not alone:
            both = [wrap(o, model, line) for o in both]
        for step in range(STEPS):
            for one in both:
                one.zero_grad()
            loss_of(model, batch(step) if alone else part(batch(step))).backward()
            for one in both:
                one.step()
        return model, both

    single, _ = trained(True)
    model, both = trained(False)
    for one in both:
        one.flush()
    close(weights(model), weights(single))


@cases.case(line=MORE_LINES)
def two_adversaries(line):
    """The discriminator learns from the generator's output, and the other way round, with an optimiser each."""
    def trained(alone):
        torch.manual_seed(5)
        generator = nn.Sequential(nn.Linear(WIDE, 8), nn.ReLU(), nn.Linear(8, OUT)).double()
        judge = nn.Sequential(nn.Linear(OUT, 8), nn.ReLU(), nn.Linear(8, 1)).double()
        makes, judges = adam(generator.parameters()), adam(judge.parameters())
        if not alone:
            makes, judges = wrap(makes, generator, line), wrap(judges, judge, line)
        for step in range(STEPS):
            noise, real = batch(step) if alone else part(batch(step))
            judges.zero_grad()
            (F.softplus(-judge(real)).mean() + F.softplus(judge(generator(noise).detach())).mean()).backward()
            judges.step()
            makes.zero_grad()
            judge.requires_grad_(False)
            F.softplus(-judge(generator(noise))).mean().backward()
            judge.requires_grad_(True)
            makes.step()
        return generator, judge, makes, judges

    single, model = trained(True), trained(False)
    for one in model[2:]:
        one.flush()
    close(weights(model[0]), weights(single[0]))
    close(weights(model[1]), weights(single[1]))


# ---- saved states ----

@cases.case(line=MORE_LINES, make=("sgd", "adam"))
def saved_and_loaded(line, make):
    make = {"sgd": sgd, "adam": adam}[make]
    single = run_alone(make_optimizer=make)
    first = run_rank(wrapped(line), make_optimizer=make, steps=2)
    with tempfile.TemporaryFile() as file:
        torch.save({"model": first.model.state_dict(), "optimizer": first.optimizer.state_dict()}, file)
        file.seek(0)
        saved = torch.load(file, weights_only=False)
    model = network()
    model.load_state_dict(saved["model"])
    optimizer = wrap(make(model.parameters()), model, line)
    optimizer.load_state_dict(saved["optimizer"])
    for step in range(2, STEPS):
        optimizer.zero_grad()
        loss_of(model, part(batch(step))).backward()
        optimizer.step()
    optimizer.flush()
    close(weights(model), weights(single.model))
    close(state_of(optimizer), state_of(single.optimizer), what="state")


@cases.case(line=LINES)
def state_of_the_model_without_flush(line):
    """state_dict() of the model right after step() holds the step's weights."""
    model = network()
    optimizer = wrap(sgd(model.parameters()), model, line)
    for step in range(STEPS):
        optimizer.zero_grad()
        loss_of(model, part(batch(step))).backward()
        optimizer.step()
    saved = {n: t.clone() for n, t in model.state_dict().items()}
    optimizer.flush()
    close(saved, weights(run_alone().model))


@cases.case(line=LINES)
def evaluation_between_steps(line):
    def step(run, pair, number):
        step_plain(run, pair, number)
        run.model.eval()
        with torch.no_grad():
            seen[run.alone].append(loss_of(run.model, batch(9)).item())
        run.model.train()

    seen = {True: [], False: []}
    trains_as_one(line, step=step)
    close(seen[False], seen[True])


@cases.case(line=LINES)
def average_of_the_weights_of_steps(line):
    def step(run, pair, number):
        if number == 0:
            run.mean = optim.swa_utils.AveragedModel(run.model)
        step_plain(run, pair, number)
        if not run.alone:
            run.optimizer.flush()
        run.mean.update_parameters(run.model)

    run, single = trains_as_one(line, step=step)
    close(weights(run.mean), weights(single.mean))


# ---- other arguments of the wrapping ----

@cases.case(line=LINES)
def sum_of_gradients(line):
    def step(run, pair, number):
        run.optimizer.zero_grad()
        (loss_of(run.model, pair) * (gw.size() if run.alone else 1)).backward()
        run.optimizer.step()

    trains_as_one(line, step=step, wrapping={"op": gw.Sum}, tolerance=1e-8)


@cases.case(line=LINES)
def predivided_gradients(line):
    trains_as_one(line, wrapping={"gradient_predivide_factor": 2.0})


@cases.case(line=LINES, compression=("fp16", "bf16"))
def compression_of_horovod(line, compression):
    half = {"fp16": torch.float16, "bf16": torch.bfloat16}[compression]
    trains_as_one(line, float32, lambda p: optim.SGD(p, lr=0.2), dtype=torch.float32, steps=2,
                  wrapping={"compression": getattr(gw.Compression, compression)}, tolerance=torch.finfo(half).eps)


@cases.case(line=LINES)
def staged_through_pinned_memory(line):
    os.environ["GRADWIRE_STAGE"] = "always"
    try:
        trains_as_one(line)
    finally:
        del os.environ["GRADWIRE_STAGE"]


@cases.case(line=LINES)
def weights_of_rank_0(line):
    """Ranks begin with other weights, and get those of the first."""
    def make():
        model = network()
        with torch.no_grad():
            for p in model.parameters():
                p.add_(gw.rank())
        gw.broadcast_parameters(model.state_dict(), 0)
        return model

    single = run_alone()
    run = run_rank(wrapped(line), make)
    close(weights(run.model), weights(single.model))


@cases.case(line=LINES)
def ranks_that_run_out_of_data(line):
    """Rank r has two steps more than the one before; the others go on with zeros."""
    def makes_step(rank, step):
        return step < 2 + 2 * rank

    model, single = network(), network()
    plain, optimizer = sgd(single.parameters()), wrap(sgd(model.parameters()), model, line)
    for step in range(2 * gw.size()):
        plain.zero_grad()
        for rank, one in enumerate(parts(batch(step))):
            if makes_step(rank, step):
                (loss_of(single, one) / gw.size()).backward()
        plain.step()
    for step in range(2 + 2 * gw.rank()):
        optimizer.zero_grad()
        loss_of(model, part(batch(step))).backward()
        optimizer.step()
    last = gw.join()
    optimizer.flush()
    close(weights(model), weights(single))
    assert last == gw.size() - 1
    optimizer.detach()
