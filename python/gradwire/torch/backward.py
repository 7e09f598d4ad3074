"""The end of a backward pass, at which optimisers complete the exchange of their gradients, as DDP does.

The first gradient of an optimiser in a pass queues a call for the pass's end. Optimisers of one pass go in the order
in which they were made, which is the same on all ranks, and all have sent before any waits.

A reentrant checkpoint calls backward() from inside of a pass. Nothing is known there about gradients that the outer
pass will bring, so the end of an inner pass completes only what lacks none."""
import sys

import torch
from torch.autograd.function import BackwardCFunction

engine = torch.autograd.Variable._execution_engine
UNKNOWN = -1  # in torch 1.13: each optimiser queues a call of its own
current_pass = getattr(torch._C, "_current_graph_task_id", lambda: UNKNOWN)
newest = None, []  # the pass that began last, and weak references to its optimisers


def enter(optimizer):
    """The optimiser, a weak reference, has its first gradient in the current pass, whose number is returned."""
    global newest
    number = current_pass()
    if newest[0] == number != UNKNOWN:
        newest[1].append(optimizer)
        return number
    newest = number, [optimizer]
    mine, inner = newest[1], is_inner()
    engine.queue_callback(lambda: end(mine, inner))
    return number


def is_inner():
    """Whether a node of another pass has called the current one."""
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code is BackwardCFunction.apply.__code__:
            return True
        frame = frame.f_back
    return False


def end(optimizers, inner):
    living = [one for one in (reference() for reference in optimizers) if one is not None]
    optimizers.clear()
    sent = [one for one in sorted(living, key=lambda one: one._number) if one._end_backward(inner)]
    for one in sent:
        one._receive()
