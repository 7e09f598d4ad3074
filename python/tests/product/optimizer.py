"""Every optimiser of torch under every schedule, and the schedules over architectures and synchronizations."""
import torch
from torch import optim

import gradwire.torch as gw
from tests.product.runner import Cases
from tests.product.runs import close_to_rounded, run_alone, run_rank, sgd
from tests.product.values import HALF, STEPS, average, batch, close, loss_of, network, part, state_of, weights
from tests.product.wrapping import trains_as_one, wrap, wrapped

cases = Cases()

OPTIMISERS = {
    "SGD": lambda p: optim.SGD(p, lr=0.2),
    "SGD with weight decay": lambda p: optim.SGD(p, lr=0.2, weight_decay=0.1),
    "momentum": lambda p: optim.SGD(p, lr=0.2, momentum=0.9, dampening=0.1),
    "nesterov": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "SGD maximize": lambda p: optim.SGD(p, lr=0.05, maximize=True),
    "SGD foreach": lambda p: optim.SGD(p, lr=0.2, momentum=0.9, foreach=True),
    "SGD fused": lambda p: optim.SGD(p, lr=0.2, momentum=0.9, fused=True),
    "Adam": lambda p: optim.Adam(p, lr=0.02),
    "Adam amsgrad": lambda p: optim.Adam(p, lr=0.02, amsgrad=True),
    "Adam maximize": lambda p: optim.Adam(p, lr=0.02, maximize=True),
    "Adam foreach": lambda p: optim.Adam(p, lr=0.02, foreach=True),
    "Adam fused": lambda p: optim.Adam(p, lr=0.02, fused=True),
    "Adam with a tensor as rate": lambda p: optim.Adam(p, lr=torch.tensor(0.02, dtype=torch.float64), foreach=False),
    "AdamW": lambda p: optim.AdamW(p, lr=0.02, weight_decay=0.1),
    "AdamW amsgrad foreach": lambda p: optim.AdamW(p, lr=0.02, amsgrad=True, foreach=True),
    "AdamW fused": lambda p: optim.AdamW(p, lr=0.02, fused=True),
    "Adamax": lambda p: optim.Adamax(p, lr=0.02),
    "NAdam": lambda p: optim.NAdam(p, lr=0.02, momentum_decay=0.01),
    "NAdam decoupled": lambda p: optim.NAdam(p, lr=0.02, weight_decay=0.1, decoupled_weight_decay=True),
    "RAdam": lambda p: optim.RAdam(p, lr=0.1),
    "Adagrad": lambda p: optim.Adagrad(p, lr=0.1, lr_decay=0.1),
    "Adagrad fused": lambda p: optim.Adagrad(p, lr=0.1, fused=True),
    "RMSprop": lambda p: optim.RMSprop(p, lr=0.01, alpha=0.9),
    "RMSprop centered with momentum": lambda p: optim.RMSprop(p, lr=0.01, centered=True, momentum=0.5),
    "Adadelta": lambda p: optim.Adadelta(p, lr=5.0),
    "ASGD": lambda p: optim.ASGD(p, lr=0.2, t0=2),
    "Rprop": lambda p: optim.Rprop(p, lr=0.02),
}
SCHEDULES = ("wfbp", "dear", "p3", "bytescheduler", "tictac", "mgwfbp")


@cases.case(schedule=SCHEDULES, optimiser=OPTIMISERS)
def optimiser(schedule, optimiser):
    trains_as_one(f"schedule={schedule}", make_optimizer=OPTIMISERS[optimiser], tolerance=1e-8)


@cases.case(schedule=("wfbp", "dear") if hasattr(optim, "Muon") else ())  # torch 2.9
def muon_of_matrices(schedule):
    """Which orthogonalises a whole matrix, in bfloat16."""
    def matrices():
        torch.manual_seed(3)
        return torch.nn.Sequential(torch.nn.Linear(6, 8, bias=False), torch.nn.Tanh(),
                                   torch.nn.Linear(8, 3, bias=False)).double()

    trains_as_one(f"schedule={schedule}", matrices, lambda p: optim.Muon(p, lr=0.1), tolerance=1e-2)


@cases.case(schedule=("wfbp", "dear"))
def adafactor(schedule):
    trains_as_one(f"schedule={schedule}", make_optimizer=lambda p: optim.Adafactor(p, lr=0.05), tolerance=1e-8)


@cases.case(schedule=("wfbp", "dear"))
def lbfgs_is_right_or_refused(schedule):
    """It calls the closure several times in a step, so it has to see averages there."""
    def step(run, pair, number):
        def closure():
            run.optimizer.zero_grad()
            loss = loss_of(run.model, pair)
            loss.backward()
            return loss
        run.optimizer.step(closure)

    def lbfgs(parameters):
        return optim.LBFGS(parameters, lr=0.1, max_iter=3)

    try:
        trains_as_one(f"schedule={schedule}", make_optimizer=lbfgs, step=step, state=False, tolerance=1e-8)
    except gw.GradwireError as error:
        assert "LBFGS" in str(error), error


def wide():
    """Matrices that are cut into slices."""
    torch.manual_seed(3)
    return torch.nn.Sequential(torch.nn.Linear(6, 700), torch.nn.Tanh(), torch.nn.Linear(700, 3)).double()


@cases.case(arch=("ring", "halving", "tree", "direct", "hierarchical", "ps"), schedule=("wfbp", "p3:slice=16K"))
def architecture(arch, schedule):
    trains_as_one(f"arch={arch} schedule={schedule}", wide)


@cases.case(schedule=("fifo", "wfbp:fuse=2000", "dear:fuse=2000", "tictac:mode=tac"))
def schedule_with(schedule):
    trains_as_one(f"schedule={schedule}", wide)


@cases.case(every=(2, 3))
def periodic_averages_of_weights(every):
    """Each rank trains alone; the weights are averaged at every n-th step."""
    dtype, steps = torch.float32, 6
    model = run_rank(wrapped(f"sync=periodic:every={every}"), lambda: network(dtype), dtype=dtype, steps=steps).model
    copies = [network(dtype) for _ in range(gw.size())]
    plain = [sgd(c.parameters()) for c in copies]
    for step in range(steps):
        for rank, (net, one) in enumerate(zip(copies, plain)):
            one.zero_grad()
            loss_of(net, part(batch(step, dtype), rank)).backward()
            one.step()
        if step % every == every - 1:
            average(copies)
    close(weights(model), weights(copies[0]))


@cases.case(warmup=(1, 2))
def delayed_by_a_step(warmup):
    """The shared weights get the average; each rank computes on them with its newest gradient added already."""
    dtype, steps, rate = torch.float32, 5, 0.2
    model = run_rank(wrapped(f"sync=delayed:warmup={warmup}"), lambda: network(dtype),
                         lambda p: optim.SGD(p, lr=rate), dtype=dtype, steps=steps).model
    shared, ahead = network(dtype), [network(dtype) for _ in range(gw.size())]
    plain = optim.SGD(shared.parameters(), lr=rate)
    for step in range(steps):
        plain.zero_grad()
        for rank, net in enumerate(ahead):
            net.zero_grad()
            loss_of(net, part(batch(step, dtype), rank)).backward()
            for p, q in zip(shared.parameters(), net.parameters()):
                p.grad = q.grad / gw.size() + (0 if p.grad is None else p.grad)
                q.data.copy_(p.data - rate * q.grad)
        plain.step()
        if step < warmup:
            for net in ahead:
                net.load_state_dict(shared.state_dict())
    close(weights(model), weights(shared))


@cases.case(servers=(1, 2))
def servers_in_lockstep(servers):
    """A push of each worker is as good as one of their mean."""
    dtype = torch.float32
    trains_as_one(f"arch=ps:servers={servers} sync=ssp:staleness=0", lambda: network(dtype),
                  lambda p: optim.SGD(p, lr=0.2), state=False, dtype=dtype)


@cases.case(codec=HALF, schedule=("wfbp", "p3", "dear"))
def codec(codec, schedule):
    dtype = torch.float32
    run = run_rank(wrapped(f"compress={codec} schedule={schedule}"), lambda: network(dtype),
                   lambda p: optim.SGD(p, lr=1.0), steps=1, dtype=dtype)
    close_to_rounded(run.module, HALF[codec])


@cases.case(line=("compress=topk:ratio=1", "compress=randomk:ratio=1", "compress=topk:ratio=1 schedule=p3"))
def codec_that_leaves_nothing_out(line):
    trains_as_one(line, lambda: network(torch.float32), dtype=torch.float32)


@cases.case(schedule=("wfbp", "dear"), optimiser=("SGD", "Adam"))
def optimiser_in_float32(schedule, optimiser):
    """Adam divides by the size of a gradient, which shows the rounding of one near zero: its epsilon is large here."""
    def make(parameters):
        return optim.Adam(parameters, lr=0.01, eps=0.1) if optimiser == "Adam" else sgd(parameters)

    trains_as_one(f"schedule={schedule}", lambda: network(torch.float32), make, dtype=torch.float32, tolerance=1e-6)


@cases.case(schedule=("wfbp", "dear"))
def state_that_another_rank_gives(schedule):
    """Ranks begin with other weights and other momenta; broadcasts make them those of rank 0."""
    single = run_alone()
    model = network()
    optimizer = wrap(sgd(model.parameters()), model, f"schedule={schedule}")
    if gw.rank() == 0:
        before = network()
        other = sgd(before.parameters())
        for step in range(2):
            other.zero_grad()
            loss_of(before, batch(step)).backward()
            other.step()
        model.load_state_dict(before.state_dict())
        optimizer.load_state_dict(other.state_dict())
    gw.broadcast_parameters(model.state_dict(), 0)
    gw.broadcast_optimizer_state(optimizer, 0)
    for step in range(2, STEPS):
        optimizer.zero_grad()
        loss_of(model, part(batch(step))).backward()
        optimizer.step()
    optimizer.flush()
    close(weights(model), weights(single.model))
    close(state_of(optimizer), state_of(single.optimizer), what="state")
