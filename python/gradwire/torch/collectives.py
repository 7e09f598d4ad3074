"""Collectives on tensors, by Horovod's names. Ranks match calls by their order; `name` appears in error sentences only.

A contiguous tensor in host memory is read and written in place. Others are copied once. Nothing here is
differentiable."""
import contextlib
import ctypes

import torch

from gradwire._library import GradwireError, check, lib, test
from gradwire.torch import horovod, joining, staging
from gradwire.torch.tensors import DTYPES, called, moved_as, number_type, plain
from gradwire.torch.world import world

Sum, Average, Min, Max, Product = range(5)  # gw_redop


class Handle:
    """A call in progress. `parts` are pairs of a request and a completion function (or None)."""

    def __init__(self, job, result, doing, keep=()):
        self.job, self.result, self.doing, self.keep, self.parts = job, result, doing, keep, []
        self.comm, self.after = job.comm, None
        job.pending.add(self)

    def start(self, function, *arguments, then=None):
        request = ctypes.c_void_p()
        status = function(self.job.comm, *arguments, ctypes.byref(request))
        if status and not self.parts:  # else requests that have begun still use the tensors
            self.job.pending.discard(self)
        check(status, self.job.comm, self.doing)
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
        self.job.pending.discard(self)
        if self.after is not None:
            self.after, after = None, self.after
            after()
        return self.result

    def _still_there(self):
        if self.parts and self.job.comm is None:
            raise GradwireError(f"{self.doing}: shutdown() came before synchronize()")

    def _completed(self, status):
        """Raises an error only when no request uses the tensors any more."""
        _, then = self.parts.pop(0)
        try:
            check(status, self.job.comm, self.doing)
        except GradwireError:
            while self.parts:
                lib.gw_wait(self.parts.pop(0)[0])
            self.job.pending.discard(self)
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
    job, doing = world(), called(call, name)
    code = number_type(tensor, doing)
    handle = Handle(job, into, doing, keep=(tensor, into))
    if not staging.needed(tensor):
        joining.announce(job, joining.REDUCTION, tensor.numel(), code, op, doing)
        handle.start(lib.gw_allreduce_start, address(tensor), address(into), tensor.numel(), code, op)
        return handle
    if into is not tensor:
        into.copy_(tensor)
    stage = staging.Stage(into)
    for index, chunk in enumerate(stage.down()):
        joining.announce(job, joining.REDUCTION, chunk.numel(), code, op, doing)
        handle.start(lib.gw_allreduce_start, address(chunk), address(chunk), chunk.numel(), code, op,
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
    job, doing = world(), called("allreduce", name)
    code = number_type(tensor, doing)
    joining.announce(job, joining.REDUCTION, tensor.numel(), code, op, doing)
    check(lib.gw_allreduce(job.comm, address(tensor), address(into), tensor.numel(), code, op), job.comm, doing)
    return into


def allreduce(tensor, name=None, op=Average, **horovods):
    """The combination of all ranks' tensors, as a new tensor. horovod.py handles Horovod's arguments (average=)."""
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
def group(job, doing):
    check(lib.gw_group_start(job.comm), job.comm, doing)
    try:
        yield
    except BaseException:
        lib.gw_group_end(job.comm)  # drops the calls of the group; the first error is raised
        raise
    check(lib.gw_group_end(job.comm), job.comm, doing)


def grouped_allreduce(tensors, name=None, op=Average, **horovods):
    """All of them at once: small tensors travel together. Returns new tensors in the same order."""
    op = horovod.operation("grouped_allreduce", op, name, **horovods)
    job, doing = world(), called("grouped_allreduce", name)
    tensors = [plain(t, doing) for t in tensors]
    if job.uneven or any(staging.needed(t) for t in tensors):
        return [h.wait() for h in [allreduce_async(t, name, op) for t in tensors]]
    tensors = [t.contiguous() for t in tensors]
    codes, results = [number_type(t, doing) for t in tensors], [torch.empty_like(t) for t in tensors]
    with group(job, doing):
        for tensor, code, result in zip(tensors, codes, results):
            check(lib.gw_allreduce(job.comm, address(tensor), address(result), tensor.numel(), code, op), job.comm,
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
    """The tensors of all ranks, concatenated along the first dimension; they may differ in this dimension only."""
    job, doing = world(), called("allgather", name)
    joining.announce(job, joining.OTHER, 0, 0, 0, doing)
    mine = in_host_memory(tensor, doing)
    mine = mine.reshape(1) if mine.dim() == 0 else mine
    words = job.gather(*shape_words(mine))
    shapes = [words[i:i + 8] for i in range(0, len(words), 8)]
    for other, shape in enumerate(shapes):
        if shape[:2] + shape[3:] != shapes[0][:2] + shapes[0][3:]:
            raise GradwireError(f"{doing}: tensors may differ in the first dimension only, but rank 0 gives "
                                f"{described(shapes[0])} and rank {other} {described(shape)}", "MISMATCH")
    whole = mine.new_empty([sum(shape[2] for shape in shapes)] + list(mine.shape[1:]))
    row = moved_as(mine.new_empty([1] + list(mine.shape[1:])))[0]
    counts = (ctypes.c_size_t * job.size)(*[shape[2] * row for shape in shapes])
    check(lib.gw_allgatherv(job.comm, address(mine), address(whole), counts, moved_as(mine)[1]), job.comm, doing)
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
    job, doing = world(), called("broadcast", name)
    joining.announce(job, joining.OTHER, 0, 0, 0, doing)
    here = in_host_memory(tensor, doing)
    count, code = moved_as(here)
    check(lib.gw_broadcast(job.comm, address(here), address(here), count, code, root_rank), job.comm, doing)
    if here.data_ptr() != tensor.data_ptr():
        tensor.detach().copy_(here)
    return tensor


def reducescatter(tensor, name=None, op=Average):
    """This rank's part of the combination, cut along the first dimension: where it cannot be divided evenly, the first
    ranks get one row more."""
    job, doing = world(), called("reducescatter", name)
    joining.announce(job, joining.OTHER, 0, 0, 0, doing)
    code, here = number_type(tensor, doing), in_host_memory(tensor, doing)
    if here.dim() == 0:
        raise GradwireError(f"{doing}: a single number cannot be divided between ranks")
    rows = [here.shape[0] // job.size + (r < here.shape[0] % job.size) for r in range(job.size)]
    width = here[:1].numel()
    part = here.new_empty([rows[job.rank]] + list(here.shape[1:]))
    counts = (ctypes.c_size_t * job.size)(*[r * width for r in rows])
    check(lib.gw_reduce_scatterv(job.comm, address(here), address(part), counts, code, op), job.comm, doing)
    return part.to(tensor.device)


def alltoall(tensor, splits=None, name=None):
    """Sends splits[r] rows of the tensor to rank r; returns the rows received from all ranks, in rank order. With
    splits the result is a pair: the rows, and how many came from each rank."""
    job, doing = world(), called("alltoall", name)
    joining.announce(job, joining.OTHER, 0, 0, 0, doing)
    here = in_host_memory(tensor, doing)
    rows = here.shape[0] if here.dim() else 0
    given = splits is not None
    to = [int(s) for s in splits] if given else [rows // job.size] * job.size
    if len(to) != job.size or sum(to) != rows or min(to) < 0:
        raise GradwireError(f"{doing}: {rows} rows cannot be divided between {job.size} ranks as {to}"
                            + ("" if given else "; give splits"))
    table = job.gather(*to)
    come = [table[r * job.size + job.rank] for r in range(job.size)]
    result = here.new_empty([sum(come)] + list(here.shape[1:]))
    exchange_rows(job, here.split(to), result.split(come), doing)
    result = result.to(tensor.device)
    return (result, torch.tensor(come, dtype=torch.int32)) if given else result


def exchange_rows(job, outgoing, incoming, doing):
    handle = Handle(job, None, doing, keep=(outgoing, incoming))
    incoming[job.rank].copy_(outgoing[job.rank])
    for distance in range(1, job.size):
        to, come = (job.rank + distance) % job.size, (job.rank - distance) % job.size
        if outgoing[to].numel():
            handle.start(lib.gw_send_start, address(outgoing[to]), *moved_as(outgoing[to]), to)
        if incoming[come].numel():
            handle.start(lib.gw_recv_start, address(incoming[come]), *moved_as(incoming[come]), come)
    handle.wait()


def barrier():
    """Returns when all ranks have called it."""
    job = world()
    joining.announce(job, joining.OTHER, 0, 0, 0, "barrier")
    check(lib.gw_barrier(job.comm), job.comm, "barrier")


def join(device=-1):
    """For a rank that has run out of data: takes part in the others' reductions with neutral values. When all ranks
    have joined, returns the last one that did. Horovod's `device` is ignored."""
    return joining.join(world())
