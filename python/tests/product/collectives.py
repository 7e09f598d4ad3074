"""Collectives of torch.distributed over the group: values of all types and operations, whole and uneven."""
import torch
import torch.distributed as dist
from torch.distributed import ReduceOp

from tests.product.inputs import combined, everybody, given, me, near, pieces, world
from tests.product.runner import Cases
from tests.product.values import close

cases = Cases()
FLOATS = ("float32", "float64", "float16", "bfloat16")
INTEGERS = ("int8", "uint8", "int32", "int64")


# ---- reductions ----

@cases.case(dtype=FLOATS + INTEGERS + ("complex64", "complex128"))
def all_reduce_sum_of(dtype):
    x = given(me(), dtype)
    dist.all_reduce(x)
    near(x, combined("SUM", dtype))


@cases.case(op=("MIN", "MAX", "PRODUCT"), dtype=("float32", "float64", "bfloat16", "int64", "uint8"))
def all_reduce(op, dtype):
    x = given(me(), dtype)
    dist.all_reduce(x, getattr(ReduceOp, op))
    near(x, combined(op, dtype))


@cases.case(dtype=("float32", "float64"))
def all_reduce_average_of(dtype):
    x = given(me(), dtype)
    dist.all_reduce(x, ReduceOp.AVG)
    near(x, combined("AVG", dtype))


@cases.case()
def all_reduce_of_tensors_that_are_multiplied_before():
    """Gloo has no such operation."""
    x = given(me(), "float64")
    dist.all_reduce(x, dist._make_nccl_premul_sum(0.25))
    close(x, combined("SUM", "float64") / 4)


@cases.case(op=("BAND", "BOR", "BXOR"), dtype=("int32", "int64", "uint8"))
def all_reduce_of_bits(op, dtype):
    x = given(me(), dtype)
    dist.all_reduce(x, getattr(ReduceOp, op))
    close(x, combined(op, dtype))


@cases.case(elements=(0, 1, 1000, 300000))
def all_reduce_of_elements(elements):
    """Beside an empty one, whose values say nothing, one that is checked."""
    x, beside = given(me(), "float64", (elements,)), given(me())
    dist.all_reduce(x)
    dist.all_reduce(beside)
    close(x, combined("SUM", "float64", (elements,)))
    close(beside, combined("SUM", "float32"))


@cases.case()
def all_reduce_of_a_scalar():
    x = given(me(), "float64", ())
    dist.all_reduce(x)
    close(x, combined("SUM", "float64", ()))


@cases.case()
def all_reduce_of_a_turned_tensor():
    """Its memory is contiguous in another order, that of channels_last."""
    x = given(me(), "float64", (2, 3, 4, 5)).contiguous(memory_format=torch.channels_last)
    dist.all_reduce(x)
    close(x, combined("SUM", "float64", (2, 3, 4, 5)))


@cases.case()
def all_reduce_of_a_sparse_tensor():
    rows = torch.zeros(6, 2, dtype=torch.float64)
    rows[me()], rows[5] = me() + 1.0, 10.0
    x = rows.to_sparse()
    dist.all_reduce(x)
    wanted = torch.zeros(6, 2, dtype=torch.float64)
    for rank in range(world()):
        wanted[rank] += rank + 1.0
    wanted[5] += 10.0 * world()
    close(x.to_dense(), wanted)


@cases.case()
def all_reduce_that_is_waited_for_later():
    tensors = [given(me(), "float64") * (i + 1) for i in range(5)]
    works = [dist.all_reduce(x, async_op=True) for x in tensors]
    for work in reversed(works):
        work.wait()
    assert all(work.is_completed() for work in works)
    close(tensors, [combined("SUM", "float64") * (i + 1) for i in range(5)])


@cases.case()
def future_of_a_call():
    x = given(me(), "float64")
    future = dist.all_reduce(x, async_op=True).get_future()
    close(future.then(lambda f: f.value()[0] * 2).wait(), combined("SUM", "float64") * 2)


@cases.case(root=("first", "last"), op=("SUM", "MAX"))
def reduce(root, op):
    root, x = 0 if root == "first" else world() - 1, given(me(), "float64")
    dist.reduce(x, root, getattr(ReduceOp, op))
    y = x.clone() if me() == root else torch.zeros_like(x)
    dist.broadcast(y, root)  # so that every rank has something to compare
    close(y, combined(op, "float64"))


@cases.case(op=("SUM", "MAX", "AVG"))
def reduce_scatter(op):
    x = torch.empty(5, dtype=torch.float64)
    dist.reduce_scatter(x, pieces(me()), getattr(ReduceOp, op))
    stack = torch.stack([pieces(r)[me()] for r in range(world())])
    close(x, {"SUM": stack.sum(0), "MAX": stack.amax(0), "AVG": stack.mean(0)}[op])


@cases.case(dtype=("float32", "bfloat16", "int64"))
def reduce_scatter_of_a_tensor(dtype):
    x = torch.empty(5, dtype=getattr(torch, dtype))
    dist.reduce_scatter_tensor(x, torch.cat(pieces(me(), dtype)))
    near(x, torch.stack([pieces(r, dtype)[me()] for r in range(world())]).double().sum(0).to(x.dtype))


@cases.case()
def reduce_scatter_of_uneven_pieces():
    def mine(rank):
        return [given(10 * rank + r, "float64", (r + 1,)) for r in range(world())]

    x = torch.empty(me() + 1, dtype=torch.float64)
    dist.reduce_scatter(x, mine(me()))
    close(x, torch.stack([mine(r)[me()] for r in range(world())]).sum(0))


# ---- collectives that move ----

@cases.case(dtype=FLOATS + INTEGERS + ("bool", "complex64", "int16"))
def broadcast(dtype):
    """Gloo has no int16."""
    x = given(me(), dtype, (40,))
    dist.broadcast(x, world() - 1)
    y = given(me(), dtype, (40,))
    dist.broadcast(y, 0)
    close([x, y], [given(world() - 1, dtype, (40,)), given(0, dtype, (40,))])


@cases.case(dtype=("float32", "bfloat16", "int64", "bool", "complex128"))
def all_gather(dtype):
    parts = [torch.zeros(2, 3, dtype=getattr(torch, dtype)) for _ in range(world())]
    dist.all_gather(parts, given(me(), dtype, (2, 3)))
    close(parts, list(everybody(dtype, (2, 3))))


@cases.case()
def all_gather_of_uneven_tensors():
    """Gloo refuses them."""
    parts = [torch.zeros(r + 1, dtype=torch.float64) for r in range(world())]
    dist.all_gather(parts, given(me(), "float64", (me() + 1,)))
    close(parts, [given(r, "float64", (r + 1,)) for r in range(world())])


@cases.case(dtype=("float32", "float16", "uint8"))
def all_gather_into_a_tensor(dtype):
    x = torch.zeros(world() * 5, dtype=getattr(torch, dtype))
    dist.all_gather_into_tensor(x, given(me(), dtype))
    close(x, everybody(dtype).flatten())


@cases.case()
def gather_and_scatter_again():
    root = world() - 1
    parts = [torch.zeros(5) for _ in range(world())] if me() == root else None
    dist.gather(given(me()), parts, root)
    x = torch.zeros(5)
    dist.scatter(x, [p * 2 for p in reversed(parts)] if me() == root else None, root)
    close(x, given(world() - 1 - me()) * 2)


@cases.case()
def all_to_all():
    parts = [torch.zeros(5, dtype=torch.float64) for _ in range(world())]
    dist.all_to_all(parts, pieces(me()))
    close(parts, [pieces(r)[me()] for r in range(world())])


@cases.case(dtype=("float32", "int64", "bfloat16"))
def all_to_all_of_a_tensor(dtype):
    x = torch.zeros(5 * world(), dtype=getattr(torch, dtype))
    dist.all_to_all_single(x, torch.cat(pieces(me(), dtype)))
    close(x, torch.cat([pieces(r, dtype)[me()] for r in range(world())]))


@cases.case()
def all_to_all_of_uneven_rows():
    """Rank r sends r + s + 1 rows to rank s."""
    def rows(r, s):
        return given(10 * r + s, "float64", (r + s + 1, 2))

    x = torch.zeros(sum(r + me() + 1 for r in range(world())), 2, dtype=torch.float64)
    dist.all_to_all_single(x, torch.cat([rows(me(), s) for s in range(world())]),
                           [r + me() + 1 for r in range(world())], [me() + s + 1 for s in range(world())])
    close(x, torch.cat([rows(r, me()) for r in range(world())]))


# ---- several calls as one ----

@cases.case()
def coalesced_all_reduce():
    tensors = [given(me(), "float64", (n,)) for n in (1, 7, 100)]
    with dist._coalescing_manager(async_ops=True) as manager:
        for x in tensors:
            dist.all_reduce(x)
    manager.wait()
    close(tensors, [combined("SUM", "float64", (n,)) for n in (1, 7, 100)])


@cases.case()
def coalesced_all_gather_and_reduce_scatter():
    gathered = [torch.zeros(world() * n) for n in (2, 5)]
    with dist._coalescing_manager():
        for x, n in zip(gathered, (2, 5)):
            dist.all_gather_into_tensor(x, given(me(), shape=(n,)))
    close(gathered, [everybody(shape=(n,)).flatten() for n in (2, 5)])
    scattered = [torch.zeros(5) for _ in range(2)]
    with dist._coalescing_manager():
        for i, x in enumerate(scattered):
            dist.reduce_scatter_tensor(x, torch.cat(pieces(me(), "float32")) * (i + 1))
    wanted = torch.stack([pieces(r, "float32")[me()] for r in range(world())]).sum(0)
    close(scattered, [wanted, wanted * 2])
