"""What scripts for Horovod ask beyond the names of gradwire.torch: how it was built, arguments of DistributedOptimizer,
and names that have no meaning here, which are refused with a sentence that says what to write instead."""
import warnings

import torch

from gradwire._library import GradwireError
from gradwire.torch.errors import ArgumentError
from gradwire.torch.operations import Average

INSTEAD = {
    "run": "start the script by `gradwire run -n 4 -- python3 train.py`",
}


def missing(name):
    """The error for a name that the module does not have."""
    reason = f": {INSTEAD[name]}" if name in INSTEAD else ""
    return AttributeError(f"gradwire.torch has no {name}{reason}")


def never():
    """Transports are the library's own, see `gradwire list`."""
    return False


mpi_built = mpi_enabled = mpi_threads_supported = gloo_built = gloo_enabled = never
ddl_built = ccl_built = cuda_built = rocm_built = never


def nccl_built():
    """The version of NCCL, which is not used."""
    return 0


def strategy(given, compression, op=Average, gradient_predivide_factor=1.0, num_groups=0, groups=None):
    """The strategy for Horovod's arguments of a DistributedOptimizer. A mean does not depend on where it is divided
    (half precision is summed in f32), and the schedule decides which tensors are fused. Horovod's third argument is the
    compression."""
    if hasattr(given, "compress"):
        given, compression = None, given
    if gradient_predivide_factor != 1 and op != Average:
        raise ArgumentError("DistributedOptimizer: gradient_predivide_factor needs op=Average")
    if num_groups:
        warnings.warn("num_groups= is deprecated: use groups=", DeprecationWarning, stacklevel=3)
    check_groups(groups)
    codec = "" if compression is None else getattr(compression, "strategy", None)
    if codec is None:
        raise ArgumentError(f"DistributedOptimizer: compression {compression!r} is no codec of a strategy: give "
                            'Compression.fp16, or strategy="compress=topk:ratio=0.01", say')
    if given is not None and not isinstance(given, str):
        raise GradwireError(f"DistributedOptimizer: {given!r} is no line of a strategy: give "
                            'strategy="compress=topk:ratio=0.01", say, or compression=Compression.fp16')
    return " ".join(words for words in (given, codec) if words) or given


def check_groups(groups):
    """None, a number, or a list of lists of tensors."""
    if groups is None or isinstance(groups, int) and groups >= 0:
        return
    tensors = [tensor for group in groups for tensor in group] if isinstance(groups, list) else [None]
    if not all(isinstance(tensor, torch.Tensor) for tensor in tensors):
        raise ArgumentError("DistributedOptimizer: groups has to be a number, 0 or more, or a list of lists of tensors")
    if len(set(map(id, tensors))) < len(tensors):
        raise ArgumentError("DistributedOptimizer: a parameter appears twice in groups")
