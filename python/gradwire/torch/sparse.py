"""Sparse tensors: ranks gather each other's indices and values, and equal indices add up."""
import torch

from gradwire.torch import collectives
from gradwire.torch.errors import ArgumentError
from gradwire.torch.operations import Average, Sum, operation
from gradwire.torch.process_sets import global_process_set


def sparse_allreduce_async(tensor, name, op, process_set=global_process_set):
    """Starts the sum or average of a sparse COO tensor. The result is a function, as in Horovod: call it for the sparse
    tensor, which is not coalesced. Waits until all ranks have called it, for their shapes."""
    op = operation("sparse_allreduce_async", op)
    if not tensor.is_sparse or op not in (Sum, Average):
        raise ArgumentError(f"sparse_allreduce_async of {name!r}: it takes a sparse COO tensor, and op Sum or Average")
    indices = collectives.allgather_async(tensor._indices().t().contiguous(), f"{name}.indices", process_set)
    values = collectives.allgather_async(tensor._values(), f"{name}.values", process_set)

    def result():
        total = values.wait() if op == Sum else values.wait() / process_set.size()
        return torch.sparse_coo_tensor(indices.wait().t(), total, tensor.shape)
    return result
