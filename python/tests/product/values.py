"""Models, batches and comparisons of the product's cases. Rank r has rows r * ROWS to (r + 1) * ROWS of a batch; one
process has them all."""
import torch
import torch.nn.functional as F
from torch import nn

import gradwire.torch as gw

STEPS, ROWS, WIDE, OUT = 4, 4, 6, 3
EXACT = {torch.float64: 1e-11, torch.complex128: 1e-11, torch.float32: 1e-6, torch.complex64: 1e-6,
         torch.bfloat16: 2**-7, torch.float16: 2**-9}  # some roundings of each type
HALF = {"fp16": torch.float16, "bf16": torch.bfloat16}  # by the names of codecs


def network(dtype=torch.float64):
    """Matrices of several sizes, normalisation, a nonlinearity."""
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(WIDE, 10), nn.Tanh(), nn.LayerNorm(10), nn.Linear(10, 8), nn.GELU(),
                         nn.Linear(8, OUT)).to(dtype)


def batch(step, dtype=torch.float64):
    generator = torch.Generator().manual_seed(100 + step)
    rows = ROWS * gw.size()
    return (torch.randn(rows, WIDE, generator=generator, dtype=torch.float64).to(dtype),
            torch.randn(rows, OUT, generator=generator, dtype=torch.float64).to(dtype))


def part(tensors, rank=None):
    """The rows of a rank: this one."""
    rank = gw.rank() if rank is None else rank
    return tuple(t[rank * ROWS:(rank + 1) * ROWS] for t in tensors)


def parts(tensors):
    """The rows of each rank."""
    return [part(tensors, r) for r in range(gw.size())]


def loss_of(model, pair):
    return F.mse_loss(model(pair[0]), pair[1])


def close(got, wanted, tolerance=None, what=""):
    """Tensors, numbers, and lists and dicts of them are the same to some roundings of their type; no NaN."""
    if isinstance(wanted, dict):
        assert set(got) == set(wanted), f"{what}: {sorted(map(str, got))} is not {sorted(map(str, wanted))}"
        for key in wanted:
            close(got[key], wanted[key], tolerance, f"{what} {key}".strip())
    elif isinstance(wanted, (list, tuple)):
        assert len(got) == len(wanted), f"{what}: {len(got)} instead of {len(wanted)}"
        for index, (a, b) in enumerate(zip(got, wanted)):
            close(a, b, tolerance, f"{what} {index}".strip())
    elif isinstance(wanted, torch.Tensor):
        tolerance = EXACT.get(wanted.dtype, 0) if tolerance is None else tolerance
        torch.testing.assert_close(got.detach(), wanted.detach(), rtol=tolerance, atol=tolerance,
                                   msg=lambda m: f"{what}: {m}")
    elif isinstance(wanted, float):
        tolerance = 1e-11 if tolerance is None else tolerance
        assert abs(got - wanted) <= tolerance * (1 + abs(wanted)), f"{what}: {got} instead of {wanted}"
    else:
        assert got == wanted, f"{what}: {got} instead of {wanted}"


def weights(model):
    return {n: p.detach() for n, p in model.named_parameters()}


def average(models):
    """Gives all models the mean of their weights."""
    with torch.no_grad():
        for same in zip(*(m.parameters() for m in models)):
            mean = torch.stack([p.detach() for p in same]).mean(0)
            for p in same:
                p.copy_(mean)


def state_of(optimizer):
    """What the optimiser keeps, by the number of the parameter."""
    return {i: {k: v for k, v in s.items() if isinstance(v, torch.Tensor)}
            for i, s in optimizer.state_dict()["state"].items()}
