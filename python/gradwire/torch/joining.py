"""Uneven data. A rank that calls join() answers the reductions of the others (zeros to a sum) until all have joined.

The steps of DistributedOptimizers say of themselves how many ranks took part, so a joined rank goes through them with
zeros. For other calls it has to know what the others are about to do: with init(join=True) each is announced by one
all-reduce of six integers. Averages are still divided by the number of all ranks, as in Horovod."""
import ctypes
from math import inf

import torch

from gradwire._library import GradwireError, check, lib
from gradwire.torch.tensors import DTYPES

REDUCTION, OTHER, STEP = 1, 2, 3
WORDS, GW_MAX = 6, 3
SUM, AVERAGE, MIN, MAX, PRODUCT = range(5)


def largest(home, words):
    line = (ctypes.c_int64 * WORDS)(*words)
    check(lib.gw_allreduce(home.comm, line, line, WORDS, DTYPES[torch.int64], GW_MAX), home.comm, "join")
    return list(line)


def announce(home, kind, count, dtype, op, doing):
    """Tells ranks that may have joined what comes now."""
    if not home.uneven:
        return
    joined = largest(home, [1, kind, count, dtype, op, 0])[5]
    if joined and kind == OTHER:
        raise GradwireError(f"{doing}: rank {joined - 1} has called join(), which answers reductions only",
                            "UNSUPPORTED")


def neutral(count, dtype, op):
    """What changes nothing."""
    kind = next(t for t, code in DTYPES.items() if code == dtype)
    low, high = (-inf, inf) if kind.is_floating_point else (torch.iinfo(kind).min, torch.iinfo(kind).max)
    value = {SUM: 0, AVERAGE: 0, MIN: high, MAX: low, PRODUCT: 1}[op]
    return torch.full((count,), value, dtype=kind)


def answer(home, count, dtype, op):
    nothing = neutral(count, dtype, op)
    check(lib.gw_allreduce(home.comm, nothing.data_ptr(), nothing.data_ptr(), count, dtype, op), home.comm, "join")


def join(home):
    answered = 0
    while another(home):
        answered += 1
    return last_of(home, answered)


def another(home):
    """Answers one call or step of the others; False when all have joined."""
    if not home.uneven:
        return any([o._shadow_step() for o in home.living()])
    active, kind, count, dtype, op, _ = largest(home, [0, 0, 0, 0, 0, home.rank + 1])
    if active and kind == OTHER:
        raise GradwireError("join: another rank has begun a call that is not a reduction, which join() cannot answer",
                            "UNSUPPORTED")
    if kind == STEP:
        home.optimizers[count]()._shadow_step()
    elif active:
        answer(home, count, dtype, op)
    return bool(active)


def last_of(home, answered):
    try:
        waited = home.gather(answered)
    except GradwireError as error:
        if error.status == "MISMATCH" and not home.uneven:
            raise GradwireError(f"{error}. Ranks may run out of data at different times only after "
                                "gradwire.torch.init(join=True)", error.status) from None
        raise
    return max(range(home.size), key=lambda r: (-waited[r], r))
