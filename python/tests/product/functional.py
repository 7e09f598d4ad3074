"""Functional collectives, compiled too, and gradients through collectives."""
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
import torch.distributed.nn.functional as differentiable

from tests.product.inputs import combined, everybody, given, me, pieces, world
from tests.product.runner import Cases
from tests.product.values import close

cases = Cases()


# ---- functional collectives ----

@cases.case(op=("sum", "max", "avg"))
def functional_all_reduce(op):
    x = given(me(), "float64")
    y = functional.all_reduce(x, op, dist.group.WORLD)
    close([y + 0, x], [combined(op.upper(), "float64"), given(me(), "float64")])


@cases.case(dim=(0, 1))
def functional_all_gather(dim):
    y = functional.all_gather_tensor(given(me(), "float64", (2, 3)), dim, dist.group.WORLD)
    close(y + 0, torch.cat(list(everybody("float64", (2, 3))), dim))


@cases.case(dim=(0, 1))
def functional_reduce_scatter(dim):
    n = world()
    y = functional.reduce_scatter_tensor(given(me(), "float64", (2 * n, 2 * n)), "sum", dim, dist.group.WORLD)
    close(y + 0, combined("SUM", "float64", (2 * n, 2 * n)).chunk(n, dim)[me()])


@cases.case()
def functional_all_to_all():
    y = functional.all_to_all_single(torch.cat(pieces(me())), None, None, dist.group.WORLD)
    close(y + 0, torch.cat([pieces(r)[me()] for r in range(world())]))


@cases.case()
def functional_broadcast():
    close(functional.broadcast(given(me()), world() - 1, dist.group.WORLD) + 0, given(world() - 1))
    close(functional.broadcast(given(me()), 0, dist.group.WORLD) + 0, given(0))


@cases.case()
def functional_collectives_of_several_tensors():
    mine = [given(me(), "float64", (n,)) for n in (2, 4)]
    sums = functional.all_reduce_coalesced(mine, "sum", dist.group.WORLD)
    gathered = functional.all_gather_into_tensor_coalesced(mine, dist.group.WORLD)
    close([x + 0 for x in sums], [combined("SUM", "float64", (n,)) for n in (2, 4)])
    close([x + 0 for x in gathered], [everybody("float64", (n,)).flatten() for n in (2, 4)])
    wide = [given(me(), "float64", (n * world(),)) for n in (2, 4)]
    scattered = functional.reduce_scatter_tensor_coalesced(wide, "sum", [0, 0], dist.group.WORLD)
    close([x + 0 for x in scattered],
          [combined("SUM", "float64", (n * world(),)).chunk(world())[me()] for n in (2, 4)])


@cases.case()
def functional_collectives_that_are_compiled():
    @torch.compile(backend="aot_eager", fullgraph=True)
    def compute(x):
        gathered = functional.all_gather_tensor(x * 2, 0, dist.group.WORLD)
        return functional.all_reduce(gathered.sin(), "sum", dist.group.WORLD) + 1

    torch._dynamo.reset()
    close(compute(given(me(), "float64")), (2 * everybody("float64").flatten()).sin() * world() + 1)


@cases.case(kind=("all_reduce", "all_gather", "all_to_all"))
def gradient_through_a_collective(kind):
    """Each rank's loss weighs what it gets by its own factors; the gradient is that of the sum of all losses."""
    def computed(inputs):
        if kind == "all_reduce":
            return [inputs.sum(0)] * world()
        if kind == "all_gather":
            return [inputs.reshape(-1)] * world()
        return [inputs[:, r] for r in range(world())]

    def loss(result, rank):
        return (result.reshape(-1) * given(rank + 50, "float64", (result.numel(),))).sum()

    shape = (world(), 2)
    inputs = everybody("float64", shape).requires_grad_(True)
    sum(loss(y, r) for r, y in enumerate(computed(inputs))).backward()
    x = given(me(), "float64", shape).requires_grad_(True)
    if kind == "all_reduce":
        y = differentiable.all_reduce(x.clone())
    elif kind == "all_gather":
        y = torch.stack(differentiable.all_gather(x.clone()))
    else:
        y = differentiable.all_to_all_single(torch.empty_like(x), x.clone())
    loss(y, me()).backward()
    close(x.grad, inputs.grad[me()])
