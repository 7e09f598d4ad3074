"""The sum of sparse tensors: ranks tell each other how many values they have, then all indices and values go to all.
Runs at the call: the size of the second part is known only when the first is complete."""
import ctypes

import torch

from gradwire._library import COLLECTIVE, GradwireError
from gradwire.torch.process_group.communicator import describe
from gradwire.torch.process_group.elements import AVG, MOVES, SUM
from gradwire.torch.tensors import DTYPES

I64 = DTYPES[torch.int64]


def allreduce(communicator, tensor, reduction):
    doing = "all_reduce"
    if reduction.code not in (SUM, AVG) or tensor.layout is not torch.sparse_coo or not tensor.is_cpu:
        raise GradwireError(f"gradwire: {doing}: sparse tensors have sums and averages only, as COO tensors in host "
                            f"memory; this is {tensor.layout} on {tensor.device}", "UNSUPPORTED")
    with torch.no_grad():
        mine = tensor.detach().coalesce()
        numbers = gathered(communicator, torch.tensor([mine._nnz()]), [1] * communicator.size, doing).tolist()
        indices = gathered(communicator, mine.indices().t().contiguous(), numbers, doing)
        values = gathered(communicator, mine.values().contiguous() * reduction.scale, numbers, doing)
        total = torch.sparse_coo_tensor(indices.t(), values, tensor.shape, check_invariants=False).coalesce()
        tensor.copy_(total / communicator.size if reduction.code == AVG else total)


def gathered(communicator, mine, rows, doing):
    """The rows of all ranks, where rank r has rows[r] of them."""
    whole = torch.empty((sum(rows), *mine.shape[1:]), dtype=mine.dtype)
    row, dtype = MOVES.elements(whole[:1], doing) if len(whole) else (0, I64)
    counts = (ctypes.c_size_t * len(rows))(*[n * row for n in rows])
    call = describe(COLLECTIVE["allgather"], dtype, input=mine.data_ptr(), output=whole.data_ptr())
    call.counts = counts
    communicator.run([call], doing)
    return whole
