"""The operations of reductions, and their scale factors."""
import warnings

from gradwire.torch.errors import ArgumentError, NotSupportedError

Sum, Average, Min, Max, Product = range(5)  # what op= of a reduction takes; the numbers are those of gw_redop
Adasum = -1  # a name of Horovod's, refused where it is used
NAMES = {Sum: "Sum", Average: "Average", Min: "Min", Max: "Max", Product: "Product"}


def operation(doing, op, average=None):
    """The op of a call; `average` is Horovod's older argument for it."""
    if average is not None:
        if op is not None:
            raise ArgumentError(f"{doing}: give only one of op and average; op supersedes average")
        warnings.warn("average= is deprecated: use op=Average or op=Sum", DeprecationWarning, stacklevel=3)
        return Average if average else Sum
    if op is None:
        return Average
    if op == Adasum:
        raise NotSupportedError(f"{doing}: there is no Adasum; reduce with op=Average or op=Sum")
    if op not in NAMES:
        raise ArgumentError(f"{doing}: op is {op!r}, but has to be one of {', '.join(NAMES.values())}")
    return op


def library_scales(job, tensor, op):
    """Whether the library applies the scale factors, in the type in which it keeps sums. Ranks that have joined do not
    know the factors."""
    return op in (Sum, Average) and tensor.is_floating_point() and not job.uneven


def scaled(tensor, factor):
    """The same by torch: integers are multiplied in f64 and truncated, as in Horovod."""
    return tensor if factor == 1 else (tensor.double() * factor).to(tensor.dtype)
