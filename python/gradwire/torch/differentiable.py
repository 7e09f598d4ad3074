"""The collectives that return new tensors. They can be differentiated; the gradients are Horovod's:

    allreduce       the same reduction of the gradients
    allgather       this rank's rows of the average
    broadcast       the average on the root, zero elsewhere
    alltoall        the rows, back from the ranks that got them
    reducescatter   the rows of all ranks; after a sum, times the number of ranks

Minimum, maximum and product have none here."""
import torch

from gradwire.torch import collectives, grouped
from gradwire.torch.compression import Compression
from gradwire.torch.errors import NotSupportedError
from gradwire.torch.operations import NAMES, Average, Sum, operation
from gradwire.torch.process_sets import global_process_set, taking_part
from gradwire.torch.tensors import called
from gradwire.torch.world import world


class NoContext:
    """For forward() where no backward() will come."""

    def mark_non_differentiable(self, *_):
        pass


def called_with(tensors, function, *arguments):
    """Calls an autograd function; directly where no tensor wants a gradient, which is quicker."""
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        return function.apply(*arguments)
    return function.forward(NoContext(), *arguments)


def check_gradient(call, op):
    if op not in (Sum, Average):
        raise NotSupportedError(f"backward of {call}: {NAMES[op]} has no gradient; use op=Average or op=Sum, or "
                                "detach() the tensor")


# ---- all-reduce ----


class Allreduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, name, op, prescale_factor, postscale_factor, process_set):
        ctx.op, ctx.rest = op, (prescale_factor, postscale_factor, process_set)
        return collectives.allreduce_now(tensor, name, op, *ctx.rest, False)

    @staticmethod
    def backward(ctx, gradient):
        check_gradient("allreduce", ctx.op)
        return (allreduce(gradient, None, None, Compression.none, ctx.op, *ctx.rest),) + (None,) * 5


def allreduce(tensor, average=None, name=None, compression=Compression.none, op=None, prescale_factor=1.0,
              postscale_factor=1.0, process_set=global_process_set):
    """The combination of all ranks' tensors, as a new tensor. `average` is an older argument for op."""
    op = operation("allreduce", op, average)
    sent, context = compression.compress(tensor)
    result = called_with([sent], Allreduce, sent, name, op, prescale_factor, postscale_factor, process_set)
    return compression.decompress(result, context)


class GroupedAllreduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx, name, op, prescale_factor, postscale_factor, process_set, *tensors):
        ctx.op, ctx.rest = op, (prescale_factor, postscale_factor, process_set)
        return grouped.allreducing(tensors, None, name, op, *ctx.rest, False).run()

    @staticmethod
    def backward(ctx, *gradients):
        check_gradient("grouped_allreduce", ctx.op)
        return (None,) * 5 + tuple(grouped_allreduce(gradients, None, None, Compression.none, ctx.op, *ctx.rest))


def grouped_allreduce(tensors, average=None, name=None, compression=Compression.none, op=None, prescale_factor=1.0,
                      postscale_factor=1.0, process_set=global_process_set):
    """allreduce of all of them at once: small tensors travel together. Returns a list in the same order."""
    op = operation("grouped_allreduce", op, average)
    pairs = [compression.compress(tensor) for tensor in tensors]
    sent = [one for one, _ in pairs]
    results = called_with(sent, GroupedAllreduce, name, op, prescale_factor, postscale_factor, process_set, *sent)
    return [compression.decompress(result, context) for result, (_, context) in zip(results, pairs)]


# ---- reduce-scatter ----


def scattered_factor(ctx):
    """What the gradients of a reduce-scatter are multiplied by."""
    check_gradient("reducescatter", ctx.op)
    prescale_factor, postscale_factor = ctx.factors
    return prescale_factor * postscale_factor * (ctx.process_set.size() if ctx.op == Sum else 1)


class Reducescatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, name, op, process_set, *factors):
        ctx.op, ctx.process_set, ctx.factors = op, process_set, factors
        doing = called("reducescatter", name)
        return collectives.reducescatter_task(taking_part(process_set, doing), doing, tensor, op, *factors).run()

    @staticmethod
    def backward(ctx, gradient):
        return (allgather(gradient * scattered_factor(ctx), process_set=ctx.process_set),) + (None,) * 5


def reducescatter(tensor, name=None, compression=Compression.none, op=Average, process_set=global_process_set,
                  prescale_factor=1.0, postscale_factor=1.0):
    """This rank's part of the combination, cut along the first dimension: where it cannot be divided evenly, the first
    ranks get one row more."""
    op = operation("reducescatter", op)
    sent, context = compression.compress(tensor)
    result = called_with([sent], Reducescatter, sent, name, op, process_set, prescale_factor, postscale_factor)
    return compression.decompress(result, context)


class GroupedReducescatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx, name, op, process_set, prescale_factor, postscale_factor, *tensors):
        ctx.op, ctx.process_set, ctx.factors = op, process_set, (prescale_factor, postscale_factor)
        return grouped.reducescattering(tensors, name, op, process_set, *ctx.factors).run()

    @staticmethod
    def backward(ctx, *gradients):
        factor = scattered_factor(ctx)
        return (None,) * 5 + grouped_allgather([g * factor for g in gradients], process_set=ctx.process_set)


def grouped_reducescatter(tensors, name=None, compression=Compression.none, op=Average, process_set=global_process_set,
                          prescale_factor=1.0, postscale_factor=1.0):
    """reducescatter of all of them at once. Returns a list in the same order."""
    op = operation("grouped_reducescatter", op)
    pairs = [compression.compress(tensor) for tensor in tensors]
    sent = [one for one, _ in pairs]
    results = called_with(sent, GroupedReducescatter, name, op, process_set, prescale_factor, postscale_factor, *sent)
    return [compression.decompress(result, context) for result, (_, context) in zip(results, pairs)]


# ---- all-gather, broadcast, all-to-all ----


def own_rows(average, first, shape):
    """The part of an average that belongs to this rank's tensor."""
    return average.narrow(0, first, shape[0] if shape else 1).reshape(shape)


class Allgather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, name, process_set):
        _, (task,) = collectives.gathering([tensor], called("allgather", name), process_set)
        whole, ctx.first = task.run()
        ctx.shape, ctx.process_set = tensor.shape, process_set
        return whole

    @staticmethod
    def backward(ctx, gradient):
        return own_rows(allreduce(gradient, process_set=ctx.process_set), ctx.first, ctx.shape), None, None


def allgather(tensor, name=None, process_set=global_process_set):
    """The tensors of all ranks, concatenated along the first dimension; they may differ in this dimension only."""
    return called_with([tensor], Allgather, tensor, name, process_set)


class GroupedAllgather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, name, process_set, *tensors):
        pairs = grouped.allgathering(tensors, name, process_set).run()
        ctx.places, ctx.process_set = [(pair[1], t.shape) for pair, t in zip(pairs, tensors)], process_set
        return tuple(whole for whole, _ in pairs)

    @staticmethod
    def backward(ctx, *gradients):
        averages = grouped_allreduce(gradients, process_set=ctx.process_set)
        return (None, None) + tuple(own_rows(one, *place) for one, place in zip(averages, ctx.places))


def grouped_allgather(tensors, name=None, process_set=global_process_set):
    """allgather of all of them at once. Returns a tuple in the same order."""
    return called_with(tensors, GroupedAllgather, name, process_set, *tensors)


class Broadcast(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, root_rank, name, process_set):
        ctx.root_rank, ctx.process_set = root_rank, process_set
        return collectives.broadcasting(tensor, root_rank, name, process_set, False).run()

    @staticmethod
    def backward(ctx, gradient):
        average = allreduce(gradient, process_set=ctx.process_set)
        return (average if world().rank == ctx.root_rank else average * 0), None, None, None


def broadcast(tensor, root_rank, name=None, process_set=global_process_set):
    """The root's tensor, as a new one; the others give one of the same shape and type. `root_rank` is a rank of the
    job."""
    return called_with([tensor], Broadcast, tensor, root_rank, name, process_set)


class Alltoall(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, splits, name, process_set):
        result, ctx.come = collectives.alltoall_task(tensor, splits, name, process_set).run()
        ctx.process_set = process_set
        ctx.mark_non_differentiable(ctx.come)
        return result, ctx.come

    @staticmethod
    def backward(ctx, gradient, _):
        return alltoall(gradient, ctx.come, process_set=ctx.process_set)[0], None, None, None


def alltoall(tensor, splits=None, name=None, process_set=global_process_set):
    """Sends splits[r] rows of the tensor to rank r; returns the rows received from all ranks, in rank order. With
    splits the result is a pair: the rows, and how many came from each rank."""
    result, come = called_with([tensor], Alltoall, tensor, splits, name, process_set)
    return result if splits is None else (result, come)
