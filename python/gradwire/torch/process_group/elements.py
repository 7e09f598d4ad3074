"""Tensors and reductions of c10d as libgradwire knows them: addresses, counts, types, operations."""
import torch
from torch.distributed import ReduceOp

from gradwire._library import GradwireError
from gradwire.torch.tensors import DTYPES, moved_as, number_type

SUM, AVG = 0, 1
OPERATIONS = {ReduceOp.SUM: SUM, ReduceOp.AVG: AVG, ReduceOp.MIN: 2, ReduceOp.MAX: 3, ReduceOp.PRODUCT: 4,
              ReduceOp.BAND: 5, ReduceOp.BOR: 6, ReduceOp.BXOR: 7}  # gw_redop


def check_place(tensor, doing):
    if not tensor.is_cpu:
        raise GradwireError(f"gradwire: {doing}: the tensor is on {tensor.device}, and the process group works in host "
                            "memory; use cpu() first, or another backend for that device", "UNSUPPORTED")
    if tensor.layout is not torch.strided:
        raise GradwireError(f"gradwire: {doing}: the tensor is {tensor.layout}; only all_reduce takes sparse tensors: "
                            "use to_dense() first", "UNSUPPORTED")


class Reduction:
    """An operation of c10d: gw_redop, and what inputs are multiplied by."""

    def __init__(self, opts):
        op = getattr(opts, "reduceOp", opts)  # torch's methods take an operation in place of options, too
        op = ReduceOp.SUM if op is None else op
        kind = getattr(op, "op", op)
        self.code, self.scale = OPERATIONS.get(kind), 1.0
        if kind == ReduceOp.PREMUL_SUM:
            self.code, self.scale = SUM, float(op.__getstate__()[1])
        if self.code is None:
            raise GradwireError(f"gradwire: the operation {kind} is unknown", "UNSUPPORTED")

    def elements(self, tensor, doing):
        """Count and type of what is combined: a complex number is a pair of real ones."""
        if not tensor.is_complex():
            code = DTYPES.get(tensor.dtype)
            return tensor.numel(), number_type(tensor, f"gradwire: {doing}") if code is None else code
        if self.code not in (SUM, AVG):
            raise GradwireError(f"gradwire: {doing}: complex numbers have sums and averages only", "UNSUPPORTED")
        return 2 * tensor.numel(), DTYPES[tensor.real.dtype]


class Moves:
    """Data that is not combined."""
    code, scale = SUM, 1.0

    def elements(self, tensor, _):
        return moved_as(tensor)


MOVES = Moves()


class Buffers:
    """The memory of one call. Tensors that are contiguous are used where they lie; others through copies, of which
    `spread` brings the results back."""

    def __init__(self, doing):
        self.doing, self.keep, self.copies = doing, [], []

    def whole(self, tensor, reads=True, writes=True):
        """A contiguous tensor in place of this one."""
        check_place(tensor, self.doing)
        if tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg():
            line = tensor
        else:
            with torch.no_grad():
                line = tensor.detach().resolve_conj().resolve_neg().contiguous() if reads else new(tensor, tensor.shape)
            if writes:
                self.copies.append((tensor, line))
        self.keep.append(line)
        return line

    def joined(self, tensors):
        """One flat tensor with the values of these."""
        for tensor in tensors:
            check_place(tensor, self.doing)
        with torch.no_grad():
            line = torch.cat([tensor.detach().resolve_conj().resolve_neg().reshape(-1) for tensor in tensors])
        self.keep.append(line)
        return line

    def split(self, tensors):
        """One flat tensor whose parts go to these."""
        line, start = new(tensors[0], (sum(tensor.numel() for tensor in tensors),)), 0
        for tensor in tensors:
            check_place(tensor, self.doing)
            self.copies.append((tensor, line[start:start + tensor.numel()]))
            start += tensor.numel()
        self.keep.append(line)
        return line

    def spread(self):
        """In inference mode, in which tensors of every mode may be written."""
        with torch.inference_mode():
            for tensor, line in self.copies:
                tensor.copy_(line.view(tensor.shape))


def new(like, shape):
    return torch.empty(shape, dtype=like.dtype)


def same_type(tensors, doing):
    if len({tensor.dtype for tensor in tensors}) > 1:
        raise GradwireError(f"gradwire: {doing}: the tensors have different types: "
                            f"{', '.join(sorted({str(tensor.dtype) for tensor in tensors}))}", "INVALID")
