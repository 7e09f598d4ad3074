"""Runs whose optimiser is a DistributedOptimizer."""
import gradwire.torch as gw
from tests.product import runs
from tests.product.runner import NEGATIVE

LINES = ("schedule=wfbp", "schedule=dear")
MORE_LINES = LINES + ("schedule=p3", "schedule=mgwfbp")


def wrap(optimizer, model, line=None, **options):
    if not NEGATIVE:
        return gw.DistributedOptimizer(optimizer, model.named_parameters(), strategy=line, **options)
    optimizer.synchronize = optimizer.flush = optimizer.detach = lambda: None
    return optimizer


def wrapped(line, **options):
    def distribute(run):
        run.optimizer = wrap(run.optimizer, run.module, line, **options)
        run.finish = run.optimizer.flush
    return distribute


def trains_as_one(line, make=runs.network, make_optimizer=runs.sgd, wrapping=None, **same):
    """The case of most features; `wrapping` are arguments of the DistributedOptimizer."""
    return runs.compared(wrapped(line, **(wrapping or {})), make, make_optimizer, **same)
