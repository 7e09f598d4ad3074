"""Collectives on tensors, by Horovod's names. Ranks match calls by their order; `name` is for the error sentences.

Tensors are used where they lie: a contiguous tensor in host memory is read and written in place. Others are copied
once. Nothing here is differentiable."""
import contextlib
import ctypes

import torch

from gradwire._library import GradwireError, check, lib, test
from gradwire.torch import horovod, joining, staging
from gradwire.torch.tensors import DTYPES, called, moved_as, number_type, plain
from gradwire.torch.world import world

Sum, Average, Min, Max, Product = range(5)  # gw_redop


class Handle:
    """A call under way. `parts` are (request, what to do when it is complete)."""

    def __init__(self, home, result, doing, keep=()):
        self.home, self.result, self.doing, self.keep, self.parts = home, result, doing, keep, []
        self.comm, self.after = home.comm, None
        home.pending.add(self)

    def start(self, function, *arguments, then=None):
        request = ctypes.c_void_p()
        status = function(self.home.comm, *arguments, ctypes.byref(request))
        if status and not self.parts:  # else what has begun still uses the tensors
            self.home.pending.discard(self)
        check(status, self.home.comm, self.doing)
        self.parts.append((request, then))

    def poll(self):
        """Whether synchronize would return at once."""
        self._still_there()
        while self.parts:
            done, status = test(self.parts[0][0])
            if not done:
                return False
            self._completed(status)
        return True

    def wait(self):
        self._still_there()
        while self.parts:
            self._completed(lib.gw_wait(self.parts[0][0]))
        self.home.pending.discard(self)
        if self.after is not None:
            self.after, after = None, self.after
            after()
        return self.result

    def _still_there(self):
        if self.parts and self.home.comm is None:
            raise GradwireError(f"{self.doing}: shutdown() came before synchronize()")

    def _completed(self, status):
        """An error is told when nothing uses the tensors any more."""
        _, then = self.parts.pop(0)
        try:
            check(status, self.home.comm, self.doing)
        except GradwireError:
            while self.parts:
                lib.gw_wait(self.parts.pop(0)[0])
            self.home.pending.discard(self)
            raise
        if then is not None:
            then()


def poll(handle):
    """Whether the call is complete; never waits."""
    return handle.poll()


def synchronize(handle):
    """Waits for an asynchronous call and returns its result."""
    return handle.wait()


def address(tensor):
    return tensor.data_ptr()


def reduced(tensor, name, op, into, call="allreduce"):
    """Starts the reduction of a contiguous `tensor` into the contiguous `into`, which may be the same."""
    home, doing = world(), called(call, name)
    code = number_type(tensor, doing)
    handle = Handle(home, into, doing, keep=(tensor, into))
    if not staging.needed(tensor):
        joining.announce(home, joining.REDUCTION, tensor.numel(), code, op, doing)
        handle.start(lib.gw_allreduce_start, address(tensor), address(into), tensor.numel(), code, op)
        return handle
    if into is not tensor:
        into.copy_(tensor)
    stage = staging.Stage(into)
    for index, piece in enumerate(stage.down()):
        joining.announce(home, joining.REDUCTION, piece.numel(), code, op, doing)
        handle.start(lib.gw_allreduce_start, address(piece), address(piece), piece.numel(), code, op,
                     then=lambda index=index: stage.up(index))
    return handle


def allreduce_async(tensor, name=None, op=Average, **horovods):
    """As allreduce; synchronize(handle) gives the result."""
    op = horovod.operation("allreduce", op, name, **horovods)
    tensor = plain(tensor, called("allreduce", name)).contiguous()
    return reduced(tensor, name, op, torch.empty_like(tensor))


def allreduce_async_(tensor, name=None, op=Average, **horovods):
    """As allreduce_; the tensor is the library's until synchronize(handle)."""
    op = horovod.operation("allreduce", op, name, **horovods)
    bare = plain(tensor, called("allreduce", name))
    if bare.is_contiguous():
        handle = reduced(bare, name, op, bare)
    else:
        copy = bare.contiguous()
        handle = reduced(copy, name, op, copy)
        handle.after = lambda: bare.copy_(copy)
    handle.result = tensor
    return handle


def blocking(tensor, name, op, into):
    """The same in the caller's own thread, which is faster."""
    home, doing = world(), called("allreduce", name)
    code = number_type(tensor, doing)
    joining.announce(home, joining.REDUCTION, tensor.numel(), code, op, doing)
    check(lib.gw_allreduce(home.comm, address(tensor), address(into), tensor.numel(), code, op), home.comm, doing)
    return into


def allreduce(tensor, name=None, op=Average, **horovods):
    """The combination of all ranks' tensors, as a new tensor. Horovod's average= and the like: horovod.py."""
    op = horovod.operation("allreduce", op, name, **horovods)
    tensor = plain(tensor, called("allreduce", name))
    if staging.needed(tensor):
        return allreduce_async(tensor, name, op).wait()
    tensor = tensor.contiguous()
    return blocking(tensor, name, op, torch.empty_like(tensor))


def allreduce_(tensor, name=None, op=Average, **horovods):
    """The same in place; returns its argument."""
    op = horovod.operation("allreduce", op, name, **horovods)
    bare = plain(tensor, called("allreduce", name))
    if staging.needed(bare) or not bare.is_contiguous():
        return allreduce_async_(tensor, name, op).wait()
    blocking(bare, name, op, bare)
    return tensor


@contextlib.contextmanager
def group(home, doing):
    check(lib.gw_group_start(home.comm), home.comm, doing)
    try:
        yield
    except BaseException:
        lib.gw_group_end(home.comm)  # what was gathered must not stay; the first error is the one to tell
        raise
    check(lib.gw_group_end(home.comm), home.comm, doing)


def grouped_allreduce(tensors, name=None, op=Average, **horovods):
    """All of them at once: small tensors travel together. Returns new tensors in the same order."""
    op = horovod.operation("grouped_allreduce", op, name, **horovods)
    home, doing = world(), called("grouped_allreduce", name)
    tensors = [plain(t, doing) for t in tensors]
    if home.uneven or any(staging.needed(t) for t in tensors):
        return [h.wait() for h in [allreduce_async(t, name, op) for t in tensors]]
    tensors = [t.contiguous() for t in tensors]
    codes, results = [number_type(t, doing) for t in tensors], [torch.empty_like(t) for t in tensors]
    with group(home, doing):
        for tensor, code, result in zip(tensors, codes, results):
            check(lib.gw_allreduce(home.comm, address(tensor), address(result), tensor.numel(), code, op), home.comm,
                  doing)
    return results


def in_host_memory(tensor, doing):
    return plain(tensor, doing).cpu().contiguous()


def shape_words(tensor):
    """Type and shape in eight integers; dimensions after the sixth are multiplied."""
    shape = list(tensor.shape)
    shape = shape[:5] + [torch.Size(shape[5:]).numel()] if len(shape) > 6 else shape + [-1] * (6 - len(shape))
    return [DTYPES.get(tensor.dtype, 100 + tensor.element_size()), tensor.dim()] + shape


def allgather(tensor, name=None):
    """The tensors of all ranks, one after the other along the first dimension, in which alone they may differ."""
    home, doing = world(), called("allgather", name)
    joining.announce(home, joining.OTHER, 0, 0, 0, doing)
    mine = in_host_memory(tensor, doing)
    mine = mine.reshape(1) if mine.dim() == 0 else mine
    words = home.gather(*shape_words(mine))
    shapes = [words[i:i + 8] for i in range(0, len(words), 8)]
    for other, shape in enumerate(shapes):
        if shape[:2] + shape[3:] != shapes[0][:2] + shapes[0][3:]:
            raise GradwireError(f"{doing}: tensors may differ in the first dimension only, but rank 0 gives "
                                f"{described(shapes[0])} and rank {other} {described(shape)}", "MISMATCH")
    whole = mine.new_empty([sum(shape[2] for shape in shapes)] + list(mine.shape[1:]))
    row = moved_as(mine.new_empty([1] + list(mine.shape[1:])))[0]
    counts = (ctypes.c_size_t * home.size)(*[shape[2] * row for shape in shapes])
    check(lib.gw_allgatherv(home.comm, address(mine), address(whole), counts, moved_as(mine)[1]), home.comm, doing)
    return whole.to(tensor.device)


def described(words):
    names = {code: str(dtype)[6:] for dtype, code in DTYPES.items()}
    return f"{names.get(words[0], 'another type')} of shape {[d for d in words[2:] if d >= 0]}"


def broadcast(tensor, root_rank, name=None):
    """The root's tensor, as a new one; the others give one of the same shape and type."""
    copy = plain(tensor, called("broadcast", name)).clone(memory_format=torch.contiguous_format)
    return broadcast_(copy, root_rank, name)


def broadcast_(tensor, root_rank, name=None):
    """The same in place; returns its argument."""
    home, doing = world(), called("broadcast", name)
    joining.announce(home, joining.OTHER, 0, 0, 0, doing)
    here = in_host_memory(tensor, doing)
    count, code = moved_as(here)
    check(lib.gw_broadcast(home.comm, address(here), address(here), count, code, root_rank), home.comm, doing)
    if here.data_ptr() != tensor.data_ptr():
        tensor.detach().copy_(here)
    return tensor


def reducescatter(tensor, name=None, op=Average):
    """This rank's part of the combination, cut along the first dimension: the first ranks get one row more where it
    cannot be divided."""
    home, doing = world(), called("reducescatter", name)
    joining.announce(home, joining.OTHER, 0, 0, 0, doing)
    code, here = number_type(tensor, doing), in_host_memory(tensor, doing)
    if here.dim() == 0:
        raise GradwireError(f"{doing}: a single number cannot be divided between ranks")
    rows = [here.shape[0] // home.size + (r < here.shape[0] % home.size) for r in range(home.size)]
    width = here[:1].numel()
    part = here.new_empty([rows[home.rank]] + list(here.shape[1:]))
    counts = (ctypes.c_size_t * home.size)(*[r * width for r in rows])
    check(lib.gw_reduce_scatterv(home.comm, address(here), address(part), counts, code, op), home.comm, doing)
    return part.to(tensor.device)


def alltoall(tensor, splits=None, name=None):
    """Rows of the tensor to each rank: as many as `splits` says, and what came from all ranks, in rank order. With
    splits the result is a pair: the rows, and how many came from each rank."""
    home, doing = world(), called("alltoall", name)
    joining.announce(home, joining.OTHER, 0, 0, 0, doing)
    here = in_host_memory(tensor, doing)
    rows = here.shape[0] if here.dim() else 0
    given = splits is not None
    to = [int(s) for s in splits] if given else [rows // home.size] * home.size
    if len(to) != home.size or sum(to) != rows or min(to) < 0:
        raise GradwireError(f"{doing}: {rows} rows cannot be divided between {home.size} ranks as {to}"
                            + ("" if given else "; give splits"))
    table = home.gather(*to)
    come = [table[r * home.size + home.rank] for r in range(home.size)]
    result = here.new_empty([sum(come)] + list(here.shape[1:]))
    exchange_rows(home, here.split(to), result.split(come), doing)
    result = result.to(tensor.device)
    return (result, torch.tensor(come, dtype=torch.int32)) if given else result


def exchange_rows(home, outgoing, incoming, doing):
    handle = Handle(home, None, doing, keep=(outgoing, incoming))
    incoming[home.rank].copy_(outgoing[home.rank])
    for distance in range(1, home.size):
        to, come = (home.rank + distance) % home.size, (home.rank - distance) % home.size
        if outgoing[to].numel():
            handle.start(lib.gw_send_start, address(outgoing[to]), *moved_as(outgoing[to]), to)
        if incoming[come].numel():
            handle.start(lib.gw_recv_start, address(incoming[come]), *moved_as(incoming[come]), come)
    handle.wait()


def barrier():
    """Returns when all ranks have called it."""
    home = world()
    joining.announce(home, joining.OTHER, 0, 0, 0, "barrier")
    check(lib.gw_barrier(home.comm), home.comm, "barrier")


def join(device=-1):
    """For a rank that has run out of data: answers what the others still reduce with neutral values, and returns, when
    all ranks have joined, the last one that did. Horovod's device is of no consequence here."""
    return joining.join(world())
