"""What each rank gives to a collective. One process makes the inputs of all ranks itself, and the result."""
import torch
import torch.distributed as dist

from tests.product.values import close

ROUNDINGS = {torch.float16: 2**-9, torch.bfloat16: 2**-6}  # of a sum or product over four ranks


def me():
    return dist.get_rank()


def world():
    return dist.get_world_size()


def given(rank, dtype=torch.float32, shape=(5,)):
    """The tensor of a rank. It differs from that of every other."""
    dtype = getattr(torch, dtype) if isinstance(dtype, str) else dtype
    generator = torch.Generator().manual_seed(rank + 1)
    if dtype == torch.bool:
        return torch.rand(shape, generator=generator) < 0.5
    if dtype.is_floating_point or dtype.is_complex:
        wide = torch.complex128 if dtype.is_complex else torch.float64
        return torch.randn(shape, generator=generator, dtype=wide).to(dtype)
    return torch.randint(1, 4, shape, generator=generator).to(dtype)


def everybody(dtype=torch.float32, shape=(5,)):
    return torch.stack([given(r, dtype, shape) for r in range(world())])


def combined(op, dtype, shape=(5,)):
    """The result of one process."""
    stack = everybody(dtype, shape)
    if op == "SUM" or op == "AVG":
        wide = stack.to(torch.float64) if stack.dtype.is_floating_point else stack
        total = wide.any(0) if stack.dtype == torch.bool else wide.sum(0)
        return (total / world() if op == "AVG" else total).to(stack.dtype)
    if op == "PRODUCT":
        return stack.prod(0).to(stack.dtype)
    if op in ("MIN", "MAX"):
        return stack.amin(0) if op == "MIN" else stack.amax(0)
    result = stack[0].clone()
    for one in stack[1:]:
        result = {"BAND": result & one, "BOR": result | one, "BXOR": result ^ one}[op]
    return result


def near(got, wanted):
    close(got, wanted, ROUNDINGS.get(wanted.dtype))


def pieces(rank, dtype="float64"):
    """What a rank has for each."""
    return [given(10 * rank + r, dtype) for r in range(world())]
