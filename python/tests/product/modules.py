"""Models under a wrapped optimiser: tied, frozen and unused parameters, checkpointing, torch.compile, and parameters of
many types and shapes."""
import copy

import torch
import torch.nn.functional as F
from torch import nn, optim

import gradwire.torch as gw
from tests.product.models import (Attends, Branches, Convolutions, Mixed, Odd, Recomputed, Recurrent, Table, Tied,
                                  Twice, Waves, compiled, partly_frozen, seeded)
from tests.product.runner import Cases
from tests.product.runs import adam, run_alone, run_rank, sgd, step_in_parts, step_plain
from tests.product.values import close, loss_of, network, weights
from tests.product.wrapping import LINES, MORE_LINES, trains_as_one, wrapped

cases = Cases()


# ---- tied, frozen and unused parameters ----

@cases.case(line=MORE_LINES)
def tied_weights(line):
    trains_as_one(line, seeded(Tied))


@cases.case(line=MORE_LINES)
def module_used_twice(line):
    trains_as_one(line, seeded(Twice), state=False)


@cases.case(line=MORE_LINES)
def frozen_parameters(line):
    trains_as_one(line, partly_frozen)


@cases.case(line=LINES)
def only_trainable_parameters_given(line):
    def make():
        model = network()
        model[0].requires_grad_(False)
        return model

    trains_as_one(line, make, lambda p: sgd([q for q in p if q.requires_grad]))


@cases.case(line=MORE_LINES, first=(True, False))
def trainable_at_first(line, first):
    """A module is frozen after two steps, or unfrozen then."""
    def step(run, pair, number):
        run.module[3].requires_grad_(first == (number < 2))
        step_plain(run, pair, number)

    trains_as_one(line, step=step)


@cases.case(line=MORE_LINES)
def unused_on_all_ranks(line):
    def forward(model, pair, rank):
        return F.mse_loss(model(pair[0], False), pair[1])

    trains_as_one(line, seeded(Branches), step=step_in_parts(forward))


@cases.case(line=MORE_LINES)
def unused_on_some_ranks(line):
    def forward(model, pair, rank):
        return F.mse_loss(model(pair[0], rank == gw.size() - 1), pair[1])

    trains_as_one(line, seeded(Branches), step=step_in_parts(forward))


@cases.case(line=MORE_LINES)
def unused_in_some_steps(line):
    def step(run, pair, number):
        run.optimizer.zero_grad()
        F.mse_loss(run.model(pair[0], number % 2 == 1), pair[1]).backward()
        run.optimizer.step()

    trains_as_one(line, seeded(Branches), adam, step=step, steps=6)


# ---- checkpointing and torch.compile ----

@cases.case(line=MORE_LINES, reentrant=(True, False))
def activation_checkpointing(line, reentrant):
    trains_as_one(line, seeded(lambda: Recomputed(reentrant)))


@cases.case(line=LINES)
def compiled_by_aot_eager(line):
    trains_as_one(line, compiled("aot_eager"), dtype=torch.float32)


@cases.case(line=LINES)
def compiled_as_one_graph(line):
    trains_as_one(line, compiled("aot_eager", fullgraph=True), dtype=torch.float32)


@cases.case()
def compiled_by_inductor():
    trains_as_one("schedule=dear", compiled("inductor"), dtype=torch.float32)


@cases.case(line=LINES)
def compiled_layers(line):
    """A part of the model is compiled, the rest is not."""
    def make():
        torch._dynamo.reset()
        model = seeded(Attends)()
        for layer in model.children():
            layer.compile(backend="aot_eager")
        return model

    trains_as_one(line, make)


@cases.case(line=LINES, fullgraph=(False, True))
def compiled_after_wrapping(line, fullgraph):
    def step(run, pair, number):
        if number == 0:
            torch._dynamo.reset()
            run.forward = torch.compile(run.model, backend="aot_eager", fullgraph=fullgraph)
        run.optimizer.zero_grad()
        F.mse_loss(run.forward(pair[0]), pair[1]).backward()
        run.optimizer.step()

    trains_as_one(line, step=step)


@cases.case(line=LINES)
def compiled_forward_and_loss(line):
    def step(run, pair, number):
        if number == 0:
            torch._dynamo.reset()
            run.loss = torch.compile(lambda x, y: F.mse_loss(run.model(x), y), backend="aot_eager")
        run.optimizer.zero_grad()
        run.loss(*pair).backward()
        run.optimizer.step()

    trains_as_one(line, step=step)


# ---- unusual models and parameters ----

@cases.case(line=MORE_LINES)
def sparse_embedding(line):
    single = run_alone(seeded(lambda: Table(False)), lambda p: optim.SGD(p, lr=0.2))
    run = run_rank(wrapped(line, sparse_as_dense=True), seeded(lambda: Table(True)), lambda p: optim.SGD(p, lr=0.2))
    close(weights(run.model), weights(single.model))


@cases.case(line=MORE_LINES)
def channels_last(line):
    def make():
        return seeded(Convolutions)().eval().to(memory_format=torch.channels_last)

    run, _ = trains_as_one(line, make)
    assert run.model.first.weight.is_contiguous(memory_format=torch.channels_last)


@cases.case(line=LINES)
def batch_norm_in_eval(line):
    trains_as_one(line, lambda: seeded(Convolutions)().eval())


@cases.case(line=LINES)
def batch_norm_of_each_rank(line):
    """Each rank normalises by its own rows; its running means are its own."""
    def forward(model, pair, rank):
        if rank == gw.rank():
            return loss_of(model, pair)
        apart = copy.deepcopy(dict(model.named_buffers()))
        return F.mse_loss(torch.func.functional_call(model, apart, pair[0]), pair[1])

    run, single = trains_as_one(line, seeded(Convolutions), step=step_in_parts(forward))
    close(dict(run.model.named_buffers()), dict(single.model.named_buffers()))


@cases.case(line=MORE_LINES, half=("bfloat16", "float16"))
def parameters_in(line, half):
    dtype = getattr(torch, half)

    def forward(model, pair, rank):
        return F.mse_loss(model(pair[0]).float(), pair[1].float())

    trains_as_one(line, lambda: network(dtype), lambda p: optim.SGD(p, lr=0.5), step=step_in_parts(forward), steps=2,
                  dtype=dtype, tolerance=2 * torch.finfo(dtype).eps)


@cases.case(line=LINES)
def parameters_of_several_types(line):
    def make():
        torch.manual_seed(3)
        return Mixed()

    def forward(model, pair, rank):
        return F.mse_loss(model(pair[0]), pair[1].float())

    trains_as_one(line, make, lambda p: optim.SGD(p, lr=0.5), step=step_in_parts(forward), steps=2, tolerance=2**-7)


@cases.case(line=LINES, dtype=("complex64", "complex128"))
def complex_parameters(line, dtype):
    def make():
        torch.manual_seed(3)
        return Waves(getattr(torch, dtype))

    trains_as_one(line, make, lambda p: optim.SGD(p, lr=0.1, momentum=0.9), steps=3,
                  dtype=getattr(torch, dtype).to_real())


@cases.case(line=MORE_LINES)
def odd_parameters(line):
    trains_as_one(line, seeded(Odd))


@cases.case(line=LINES)
def recurrent_network(line):
    trains_as_one(line, seeded(Recurrent))


@cases.case(line=MORE_LINES)
def attention(line):
    trains_as_one(line, seeded(Attends))


@cases.case(line=LINES)
def weight_norm(line):
    def make():
        model = network()
        nn.utils.parametrizations.weight_norm(model[3])
        return model

    trains_as_one(line, make)


@cases.case(line=LINES)
def dropout_of_each_rank(line):
    def forward(model, pair, rank):
        torch.manual_seed(40 + rank)
        return F.mse_loss(F.dropout(model(pair[0]), 0.3), pair[1])

    trains_as_one(line, step=step_in_parts(forward))
