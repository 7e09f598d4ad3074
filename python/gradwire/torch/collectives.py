"""Collectives on tensors, by Horovod's names: those that write in place or return a handle. differentiable.py has those
that return new tensors, grouped.py those of several tensors. Ranks match calls by their order; `name` appears in error
sentences only.

A contiguous tensor in host memory is read and written in place. Others are copied once."""
import ctypes

import torch

from gradwire._library import Call, GradwireError, check, lib
from gradwire.torch import joining, staging
from gradwire.torch.errors import ArgumentError
from gradwire.torch.handles import Handle, Task
from gradwire.torch.operations import Average, library_scales, operation, scaled
from gradwire.torch.process_sets import global_process_set, job_of, taking_part
from gradwire.torch.tensors import DTYPES, called, moved_as, number_type, plain
from gradwire.torch.world import world

# ---- all-reduce ----


def allreduce_task(job, doing, tensor, op, prescale_factor, postscale_factor, in_place):
    """The combination of all ranks' tensors, in a new one or in place."""
    bare = plain(tensor, doing)
    source = bare.contiguous()
    into = source if in_place else torch.empty_like(source)
    code, inside = number_type(source, doing), library_scales(job, source, op)
    if not inside:
        source = scaled(source, prescale_factor)
    call = Call("allreduce", dtype=code, op=op, input=source.data_ptr(), output=into.data_ptr(), count=source.numel(),
                prescale=prescale_factor if inside else 1, postscale=postscale_factor if inside else 1)

    def result():
        if not inside and postscale_factor != 1:
            into.copy_(scaled(into, postscale_factor))
        if in_place and into.data_ptr() != bare.data_ptr():
            bare.copy_(into)
        return tensor if in_place else into
    return Task(job, doing, call, (source, into), result)


def staged_allreduce(job, doing, tensor, op, prescale_factor, postscale_factor, in_place):
    """The same from and to a device, chunk by chunk."""
    bare = plain(tensor, doing)
    into = bare if in_place and bare.is_contiguous() else bare.clone(memory_format=torch.contiguous_format)
    inside = library_scales(job, into, op)
    if not inside:
        into.copy_(scaled(into, prescale_factor))

    def result():
        if not inside:
            into.copy_(scaled(into, postscale_factor))
        if in_place and into.data_ptr() != bare.data_ptr():
            bare.copy_(into)
        return tensor if in_place else into
    handle, stage = Handle(job, doing, result, into), staging.Stage(into)
    for index, chunk in enumerate(stage.down()):
        factors = (prescale_factor, postscale_factor) if inside else (1, 1)
        task = allreduce_task(job, doing, chunk, op, *factors, in_place=True)
        joining.announce_call(job, task.call, doing)
        handle.start(task.call, then=lambda index=index: stage.up(index))
    return handle


def start_allreduce(tensor, average, name, op, prescale_factor, postscale_factor, process_set, in_place):
    doing = called("allreduce", name)
    job, op = job_of(process_set, doing), operation(doing, op, average)
    if staging.needed(tensor):
        return staged_allreduce(job, doing, tensor, op, prescale_factor, postscale_factor, in_place)
    return allreduce_task(job, doing, tensor, op, prescale_factor, postscale_factor, in_place).start()


def allreduce_async(tensor, average=None, name=None, op=None, prescale_factor=1.0, postscale_factor=1.0,
                    process_set=global_process_set):
    """As allreduce; synchronize(handle) gives the result."""
    return start_allreduce(tensor, average, name, op, prescale_factor, postscale_factor, process_set, False)


def allreduce_async_(tensor, average=None, name=None, op=None, prescale_factor=1.0, postscale_factor=1.0,
                     process_set=global_process_set):
    """As allreduce_; the tensor is the library's until synchronize(handle)."""
    return start_allreduce(tensor, average, name, op, prescale_factor, postscale_factor, process_set, True)


def allreduce_now(tensor, name, op, prescale_factor, postscale_factor, process_set, in_place):
    """In the caller's own thread, which is faster; the usual case without a description of the call."""
    doing = called("allreduce", name)
    if staging.needed(tensor):
        return start_allreduce(tensor, None, name, op, prescale_factor, postscale_factor, process_set, in_place).wait()
    job = job_of(process_set, doing)
    if prescale_factor != 1 or postscale_factor != 1 or not tensor.is_contiguous():
        return allreduce_task(job, doing, tensor, op, prescale_factor, postscale_factor, in_place).run()
    bare = plain(tensor, doing)
    into, code = bare if in_place else torch.empty_like(bare), number_type(bare, doing)
    joining.announce(job, joining.REDUCTION, bare.numel(), code, op, doing)
    check(lib.gw_allreduce(job.comm, bare.data_ptr(), into.data_ptr(), bare.numel(), code, op), job.comm, doing)
    return tensor if in_place else into


def allreduce_(tensor, average=None, name=None, op=None, prescale_factor=1.0, postscale_factor=1.0,
               process_set=global_process_set):
    """The combination of all ranks' tensors, in place; returns its argument."""
    op = operation("allreduce", op, average)
    return allreduce_now(tensor, name, op, prescale_factor, postscale_factor, process_set, True)


# ---- reduce-scatter ----


def reducescatter_task(job, doing, tensor, op, prescale_factor, postscale_factor):
    """This rank's rows of the combination. Where they cannot be divided evenly, the first ranks get one row more."""
    here = in_host_memory(tensor, doing)
    if here.dim() == 0:
        raise ArgumentError(f"{doing}: a single number cannot be divided between ranks")
    code, inside = number_type(here, doing), library_scales(job, here, op)
    if not inside:
        here = scaled(here, prescale_factor)
    rows = [here.shape[0] // job.size + (r < here.shape[0] % job.size) for r in range(job.size)]
    part = here.new_empty([rows[job.rank]] + list(here.shape[1:]))
    call = Call("reduce_scatter", dtype=code, op=op, input=here.data_ptr(), output=part.data_ptr(),
                prescale=prescale_factor if inside else 1, postscale=postscale_factor if inside else 1)
    set_counts(call, rows, here.shape[1:].numel())
    return Task(job, doing, call, (here, part),
                lambda: (part if inside else scaled(part, postscale_factor)).to(tensor.device))


def reducescatter_async(tensor, name=None, op=Average, process_set=global_process_set, prescale_factor=1.0,
                        postscale_factor=1.0):
    """As reducescatter; synchronize(handle) gives the result."""
    doing = called("reducescatter", name)
    op, job = operation(doing, op), taking_part(process_set, doing)
    return reducescatter_task(job, doing, tensor, op, prescale_factor, postscale_factor).start()


# ---- all-gather, broadcast, all-to-all ----


def in_host_memory(tensor, doing):
    return plain(tensor, doing).cpu().contiguous()


def shape_words(tensor):
    """Type and shape in eight integers; dimensions after the sixth are multiplied."""
    shape = list(tensor.shape)
    shape = shape[:5] + [torch.Size(shape[5:]).numel()] if len(shape) > 6 else shape + [-1] * (6 - len(shape))
    return [DTYPES.get(tensor.dtype, 100 + tensor.element_size()), tensor.dim()] + shape


def described(words):
    names = {code: str(dtype)[6:] for dtype, code in DTYPES.items()}
    return f"{names.get(words[0], 'another type')} of shape {[d for d in words[2:] if d >= 0]}"


def check_shapes(shapes, doing):
    """shapes: the shape_words of every rank."""
    for other, shape in enumerate(shapes):
        if shape[:2] + shape[3:] != shapes[0][:2] + shapes[0][3:]:
            raise GradwireError(f"{doing}: tensors may differ in the first dimension only, but rank 0 gives "
                                f"{described(shapes[0])} and rank {other} {described(shape)}", "MISMATCH")


def array(numbers):
    return (ctypes.c_size_t * len(numbers))(*numbers)


def set_counts(call, rows, width):
    """How many elements each rank has, or all of them."""
    if len(set(rows)) == 1:
        call.count = rows[0] * width
    else:
        call.counts = array([r * width for r in rows])


def exchange_shapes(job, doing, tensors):
    """For each tensor the number of its rows on every rank."""
    words = job.gather(*[word for tensor in tensors for word in shape_words(tensor)])
    rows = []
    for place in range(len(tensors)):
        starts = range(8 * place, len(words), 8 * len(tensors))
        shapes = [words[at:at + 8] for at in starts]
        check_shapes(shapes, doing)
        rows.append([shape[2] for shape in shapes])
    return rows


def with_rows(tensor, doing):
    here = in_host_memory(tensor, doing)
    return here.reshape(1) if here.dim() == 0 else here


def allgather_task(job, doing, device, here, rows):
    """The result: the rows of all ranks, and the place of this rank's."""
    whole = here.new_empty([sum(rows)] + list(here.shape[1:]))
    width, code = moved_as(here.new_empty([1] + list(here.shape[1:])))
    call = Call("allgather", dtype=code, input=here.data_ptr(), output=whole.data_ptr())
    set_counts(call, rows, width)
    return Task(job, doing, call, (here, whole), lambda: (whole.to(device), sum(rows[:job.rank])))


def gathering(tensors, doing, process_set):
    """A task for each tensor. Ranks tell each other their shapes first, and wait for that."""
    job = taking_part(process_set, doing)
    here = [with_rows(tensor, doing) for tensor in tensors]
    rows = exchange_shapes(job, doing, here) if tensors else []
    return job, [allgather_task(job, doing, *one) for one in zip([t.device for t in tensors], here, rows)]


def allgather_async(tensor, name=None, process_set=global_process_set):
    """As allgather; synchronize(handle) gives the result. It waits until all ranks have called it, for their
    shapes."""
    _, (task,) = gathering([tensor], called("allgather", name), process_set)
    task.result, gathered = lambda: gathered()[0], task.result
    return task.start()


def broadcast_task(job, doing, tensor, result, root):
    """The root's tensor in `result`, which is the same one, or None for a new one."""
    here = in_host_memory(tensor, doing)
    if result is None and here.data_ptr() == tensor.data_ptr():
        here = here.clone()
    count, code = moved_as(here)
    call = Call("broadcast", dtype=code, input=here.data_ptr(), output=here.data_ptr(), count=count, root=root)

    def give():
        if result is None:
            return here.to(tensor.device)
        if here.data_ptr() != result.data_ptr():
            result.detach().copy_(here)
        return result
    return Task(job, doing, call, here, give)


def broadcasting(tensor, root_rank, name, process_set, in_place):
    doing = called("broadcast", name)
    job = taking_part(process_set, doing)
    return broadcast_task(job, doing, tensor, tensor if in_place else None, process_set.index(root_rank, doing))


def broadcast_async(tensor, root_rank, name=None, process_set=global_process_set):
    """As broadcast; synchronize(handle) gives the result."""
    return broadcasting(tensor, root_rank, name, process_set, False).start()


def broadcast_async_(tensor, root_rank, name=None, process_set=global_process_set):
    """As broadcast_; the tensor is the library's until synchronize(handle)."""
    return broadcasting(tensor, root_rank, name, process_set, True).start()


def broadcast_(tensor, root_rank, name=None, process_set=global_process_set):
    """The root's tensor in place; returns its argument. `root_rank` is a rank of the job."""
    return broadcasting(tensor, root_rank, name, process_set, True).run()


def checked_splits(job, doing, rows, splits):
    if splits is None:
        if rows % job.size:
            raise ArgumentError(f"{doing}: {rows} rows cannot be divided evenly between {job.size} ranks; give splits")
        return [rows // job.size] * job.size
    if isinstance(splits, torch.Tensor) and (splits.is_floating_point() or splits.is_complex()):
        raise ArgumentError(f"{doing}: splits are of type {splits.dtype}, but have to be integers")
    to = [int(s) for s in splits]
    if len(to) != job.size or sum(to) != rows or min(to) < 0:
        raise ArgumentError(f"{doing}: {rows} rows cannot be divided between {job.size} ranks as {to}")
    return to


def alltoall_task(tensor, splits, name, process_set):
    """The result: the rows received from all ranks, in rank order, and how many came from each. Ranks tell each other
    shapes and splits first, and wait for that."""
    doing = called("alltoall", name)
    job = taking_part(process_set, doing)
    here = in_host_memory(tensor, doing)
    to = checked_splits(job, doing, here.shape[0] if here.dim() else 0, splits)
    words = job.gather(*shape_words(here), *to)
    table = [words[at:at + 8 + job.size] for at in range(0, len(words), 8 + job.size)]
    check_shapes([row[:8] for row in table], doing)
    come = [row[8 + job.rank] for row in table]
    result = here.new_empty([sum(come)] + list(here.shape[1:]))
    width, code = moved_as(here.new_empty([1] + list(here.shape[1:])))
    call = Call("alltoallv", dtype=code, input=here.data_ptr(), output=result.data_ptr(),
                in_counts=array([rows * width for rows in to]), out_counts=array([rows * width for rows in come]))
    kind = splits if isinstance(splits, torch.Tensor) else torch.empty(0, dtype=torch.int32)
    return Task(job, doing, call, (here, result), lambda: (result.to(tensor.device), kind.new_tensor(come)))


def alltoall_async(tensor, splits=None, name=None, process_set=global_process_set):
    """As alltoall; synchronize(handle) gives a pair: the rows, and how many came from each rank. It waits until all
    ranks have called it, for their shapes."""
    return alltoall_task(tensor, splits, name, process_set).start()


# ---- no tensors ----


def barrier(process_set=global_process_set):
    """Returns when all ranks have called it."""
    job = taking_part(process_set, "barrier")
    check(lib.gw_barrier(job.comm), job.comm, "barrier")


def join(device=-1):
    """For a rank that has run out of data: takes part in the others' reductions with neutral values. When all ranks
    have joined, returns the last one that did. Horovod's `device` is ignored."""
    return joining.join(world())
