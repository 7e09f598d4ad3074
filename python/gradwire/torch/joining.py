"""Uneven data. A rank that calls join() takes part in the reductions of the others with neutral values (zeros in a sum)
until all have joined.

Steps of a DistributedOptimizer contain the number of ranks that took part, so a joined rank takes part with zeros. For
other calls it must know what the others will call: with init(join=True) one all-reduce of six integers announces each.
Averages are still divided by the number of all ranks, as in Horovod."""
import ctypes
from math import inf

import torch

from gradwire._library import COLLECTIVE, GradwireError, check, lib
from gradwire.torch.operations import Average, Max, Min, Product, Sum
from gradwire.torch.tensors import DTYPES

REDUCTION, OTHER, STEP = 1, 2, 3
WORDS = 6


def largest(job, words):
    line = (ctypes.c_int64 * WORDS)(*words)
    check(lib.gw_allreduce(job.comm, line, line, WORDS, DTYPES[torch.int64], Max), job.comm, "join")
    return list(line)


def announce(job, kind, count, dtype, op, doing):
    """Announces the next call to ranks that may have joined."""
    if not job.uneven:
        return
    joined = largest(job, [1, kind, count, dtype, op, 0])[5]
    if joined and kind == OTHER:
        raise GradwireError(f"{doing}: rank {joined - 1} has called join(), which answers reductions only",
                            "UNSUPPORTED")


def announce_call(job, call, doing):
    """Announces a reduction. Other calls are announced before ranks exchange shapes (process_sets.taking_part)."""
    if call.collective == COLLECTIVE["allreduce"]:
        announce(job, REDUCTION, call.count, call.dtype, call.op, doing)


def neutral(count, dtype, op):
    """A tensor that does not change the result."""
    kind = next(t for t, code in DTYPES.items() if code == dtype)
    low, high = (-inf, inf) if kind.is_floating_point else (torch.iinfo(kind).min, torch.iinfo(kind).max)
    value = {Sum: 0, Average: 0, Min: high, Max: low, Product: 1}[op]
    return torch.full((count,), value, dtype=kind)


def answer(job, count, dtype, op):
    nothing = neutral(count, dtype, op)
    check(lib.gw_allreduce(job.comm, nothing.data_ptr(), nothing.data_ptr(), count, dtype, op), job.comm, "join")


def join(job):
    answered = 0
    while another(job):
        answered += 1
    return last_of(job, answered)


def another(job):
    """Takes part in one call or step of the others; False when all have joined."""
    if not job.uneven:
        return any([o._shadow_step() for o in job.living()])
    active, kind, count, dtype, op, _ = largest(job, [0, 0, 0, 0, 0, job.rank + 1])
    if kind == STEP:
        job.optimizers[count]()._shadow_step()
    elif kind == REDUCTION:  # other calls raise an error on the ranks that make them
        answer(job, count, dtype, op)
    return bool(active)


def last_of(job, answered):
    try:
        waited = job.gather(answered)
    except GradwireError as error:
        if error.status == "MISMATCH" and not job.uneven:
            raise GradwireError(f"{error}. Ranks may run out of data at different times only after "
                                "gradwire.torch.init(join=True)", error.status) from None
        raise
    return max(range(job.size), key=lambda r: (-waited[r], r))
