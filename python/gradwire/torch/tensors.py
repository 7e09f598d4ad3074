"""Tensors for libgradwire: an address, a number of elements and their type."""
import torch

from gradwire.torch.errors import ArgumentError

DTYPES = {torch.float32: 0, torch.float64: 1, torch.float16: 2, torch.bfloat16: 3, torch.int8: 4, torch.uint8: 5,
          torch.int32: 6, torch.int64: 7, torch.bool: 8, torch.int16: 9}
NEWER = {"uint16": 10, "uint32": 11, "uint64": 12, "float8_e4m3fn": 13, "float8_e5m2": 14}  # not in every PyTorch
DTYPES.update({getattr(torch, name): code for name, code in NEWER.items() if hasattr(torch, name)})
U8 = DTYPES[torch.uint8]


def called(call, name):
    """What an error sentence begins with."""
    if name is None:
        return call
    if not isinstance(name, str):
        raise ArgumentError(f"{call}: the name of the tensor is {name!r}, but has to be a string")
    return f'{call} of "{name}"'


def plain(tensor, doing):
    """The tensor without its autograd history; sparse tensors are refused."""
    if tensor.is_sparse:
        raise ArgumentError(f"{doing}: the tensor is sparse; use sparse_allreduce_async, or to_dense() first",
                            "UNSUPPORTED")
    return tensor.detach()


def number_type(tensor, doing):
    """The type of a tensor whose elements are to be combined."""
    code = DTYPES.get(tensor.dtype)
    if code is None:
        raise ArgumentError(f"{doing}: elements of type {tensor.dtype} cannot be combined; convert the tensor to one "
                            f"of {', '.join(str(t)[6:] for t in DTYPES)} first", "UNSUPPORTED")
    return code


def moved_as(tensor):
    """Elements and type of a tensor that is only moved: types that the library does not know travel as bytes."""
    code = DTYPES.get(tensor.dtype)
    return (tensor.numel(), code) if code is not None else (tensor.numel() * tensor.element_size(), U8)
