"""Every call against its expected result, computed from the same seeds on every rank."""
import os
import threading
import time

import torch

import cases
import gradwire.torch as gw

TYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.uint8, torch.int32, torch.int64]
OPS = {gw.Sum: lambda s: s.sum(0), gw.Average: lambda s: s.sum(0), gw.Min: lambda s: s.min(0).values,
       gw.Max: lambda s: s.max(0).values, gw.Product: lambda s: s.prod(0)}


def made(rank, shape, dtype=torch.float32):
    """Small whole numbers: every sum and product of them is exact in every type."""
    generator = torch.Generator().manual_seed(100 + rank)
    low = 0 if dtype == torch.uint8 else -2
    return torch.randint(low, 4, shape, generator=generator).to(dtype)


def wanted(shape, dtype, op):
    parts = torch.stack([made(r, shape, dtype).double() for r in range(gw.size())])
    result = OPS[op](parts)
    if op == gw.Average:
        result = result / gw.size()
        result = result if dtype.is_floating_point else result.trunc()
    return result.to(dtype)


def close(a, b):
    assert a.dtype == b.dtype and a.shape == b.shape, (a.dtype, a.shape, b.dtype, b.shape)
    torch.testing.assert_close(a, b, rtol=0.01 if a.dtype in (torch.float16, torch.bfloat16) else 1e-6, atol=0)


def test_allreduce_of_every_type_and_operation():
    for dtype in TYPES:
        for op in OPS:
            for shape in ((0,), (), (7,), (3, 11, 5)):
                close(gw.allreduce(made(gw.rank(), shape, dtype), op=op), wanted(shape, dtype, op))


def test_large_and_in_place_where_it_lies():
    x = made(gw.rank(), (1000003,))
    at = x.data_ptr()
    assert gw.allreduce_(x, op=gw.Sum) is x and x.data_ptr() == at
    close(x, wanted((1000003,), torch.float32, gw.Sum))


def test_tensors_that_do_not_lie_in_one_piece():
    x = made(gw.rank(), (6, 8)).t()
    close(gw.allreduce(x, op=gw.Sum), wanted((6, 8), torch.float32, gw.Sum).t().contiguous())
    whole = torch.zeros(6, 16)
    whole[:, ::2] = made(gw.rank(), (6, 8))
    gw.allreduce_(whole[:, ::2], op=gw.Sum)
    close(whole[:, ::2].contiguous(), wanted((6, 8), torch.float32, gw.Sum))
    assert not whole[:, 1::2].any()


def test_parameters_in_place():
    x = torch.nn.Parameter(made(gw.rank(), (5,)))
    assert gw.allreduce_(x, op=gw.Sum) is x
    close(x.detach(), wanted((5,), torch.float32, gw.Sum))


def test_many_at_once_and_waited_for_in_another_order():
    handles = [gw.allreduce_async(made(gw.rank(), (n * 1000,)), op=gw.Sum) for n in range(20)]
    inside = made(gw.rank(), (4097,))
    last = gw.allreduce_async_(inside, op=gw.Max)
    for n in reversed(range(20)):
        close(gw.synchronize(handles[n]), wanted((n * 1000,), torch.float32, gw.Sum))
    assert gw.synchronize(last) is inside
    close(inside, wanted((4097,), torch.float32, gw.Max))


def test_poll():
    handle = gw.allreduce_async(made(gw.rank(), (10,)), op=gw.Sum)
    until = time.time() + 10
    while not gw.poll(handle):
        assert time.time() < until
    close(gw.synchronize(handle), wanted((10,), torch.float32, gw.Sum))


def test_grouped():
    for shapes in ([(3,), (4, 4), ()], [(70000,)] * 3, []):
        results = gw.grouped_allreduce([made(gw.rank(), s) for s in shapes], op=gw.Average)
        for shape, result in zip(shapes, results):
            close(result, wanted(shape, torch.float32, gw.Average))


def test_staged_as_if_from_a_device():
    os.environ["GRADWIRE_STAGE"] = "always"
    x = made(gw.rank(), (5000001,))
    close(gw.allreduce(x, op=gw.Sum), wanted((5000001,), torch.float32, gw.Sum))
    gw.allreduce_(x, op=gw.Sum)
    close(x, wanted((5000001,), torch.float32, gw.Sum))
    y = made(gw.rank(), (6, 8)).t()
    gw.allreduce_(y, op=gw.Sum)
    close(y.contiguous(), wanted((6, 8), torch.float32, gw.Sum).t().contiguous())
    close(gw.grouped_allreduce([made(gw.rank(), ())], op=gw.Sum)[0], wanted((), torch.float32, gw.Sum))
    del os.environ["GRADWIRE_STAGE"]


def test_allgather_with_uneven_rows():
    for dtype in TYPES + [torch.bool, torch.int16, torch.complex64]:
        parts = [made(r, (2 * r, 3)).to(dtype) for r in range(gw.size())]  # rank 0 has none
        assert torch.equal(gw.allgather(parts[gw.rank()]), torch.cat(parts))
    assert gw.allgather(torch.tensor(gw.rank())).tolist() == list(range(gw.size()))
    cases.refused("rank 0 gives float32 of shape [2, 3] and rank 1 float32 of shape [2, 4]", gw.allgather,
                  torch.zeros(2, 3 + gw.rank()), "words")
    cases.refused("rank 1 int64", gw.allgather, torch.zeros(2, dtype=torch.int64 if gw.rank() else torch.float32))


def test_broadcast():
    root = gw.size() - 1
    for dtype in TYPES + [torch.bool, torch.int16]:
        x = made(gw.rank(), (4, 3), dtype)
        assert torch.equal(gw.broadcast(x, root), made(root, (4, 3), dtype))
        assert torch.equal(x, made(gw.rank(), (4, 3), dtype))
        y = x.t()
        assert gw.broadcast_(y, root) is y and torch.equal(x, made(root, (4, 3), dtype))


def test_reducescatter():
    rows = 2 * gw.size() + 1
    whole = wanted((rows, 3), torch.float32, gw.Sum)
    first = sum(rows // gw.size() + (r < rows % gw.size()) for r in range(gw.rank()))
    mine = gw.reducescatter(made(gw.rank(), (rows, 3)), op=gw.Sum)
    close(mine, whole[first:first + mine.shape[0]])
    assert sum(gw.allgather(torch.tensor(mine.shape[0])).tolist()) == rows


def test_alltoall():
    n, me = gw.size(), gw.rank()
    assert gw.alltoall(torch.arange(2 * n) + 100 * me).tolist() == \
        [100 * r + 2 * me + i for r in range(n) for i in range(2)]
    splits = [(me + to) % 3 for to in range(n)]  # some are empty
    rows = torch.tensor([[me, to] for to in range(n) for _ in range(splits[to])]).reshape(-1, 2)
    got, counts = gw.alltoall(rows, splits)
    assert counts.tolist() == [(r + me) % 3 for r in range(n)]
    assert got.tolist() == [[r, me] for r in range(n) for _ in range((r + me) % 3)]
    cases.refused("cannot be divided evenly", gw.alltoall, torch.zeros(n + 1))


def test_objects():
    assert gw.broadcast_object({"rank": gw.rank()}, 1) == {"rank": 1}
    assert gw.allgather_object("x" * gw.rank()) == ["x" * r for r in range(gw.size())]


def test_parameters_and_optimiser_state():
    torch.manual_seed(gw.rank())
    model = torch.nn.Sequential(torch.nn.Conv2d(1, 4, 3), torch.nn.BatchNorm2d(4))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1 * (1 + gw.rank()))
    if gw.rank() == 0:  # the others have no state yet
        model(torch.randn(2, 1, 5, 5)).sum().backward()
        optimizer.step()
    gw.broadcast_parameters(model.state_dict(), 0)
    gw.broadcast_optimizer_state(optimizer, 0)
    same(model.state_dict())
    assert optimizer.param_groups[0]["lr"] == 0.1
    assert optimizer.state[model[0].weight]["step"] == 1
    same({str(i): s["exp_avg"] for i, s in optimizer.state_dict()["state"].items()})
    text = cases.refused("different tensors at place 1", gw.broadcast_parameters,
                         [("a", torch.zeros(2)), (f"b{min(gw.rank(), 1)}", torch.zeros(2))])
    assert '"b0"' in str(text) and '"b1"' in str(text)


def same(tensors):
    for name, tensor in tensors.items():
        for other in gw.allgather_object(tensor):
            assert torch.equal(tensor, other), name


def test_bad_arguments_fail_only_the_call():
    cases.refused('allreduce of "mask": elements of type torch.complex64', gw.allreduce,
                  torch.zeros(2, dtype=torch.complex64), name="mask")
    cases.refused("sparse", gw.allreduce, torch.zeros(3).to_sparse())
    cases.refused("root", gw.broadcast, torch.zeros(2), gw.size())
    assert gw.allreduce(torch.ones(1), op=gw.Sum).item() == gw.size()


def test_other_threads_run_while_one_waits():
    counted, stop = [0], threading.Event()

    def count():
        while not stop.is_set():
            counted[0] += 1
            time.sleep(0.001)

    thread = threading.Thread(target=count)
    if gw.rank() == 0:
        time.sleep(0.3)
        gw.barrier()
        return
    thread.start()
    gw.barrier()
    stop.set()
    thread.join()
    assert counted[0] > 20, counted


def test_places():
    assert gw.local_size() == gw.size() and gw.local_rank() == gw.rank()
    assert (gw.cross_rank(), gw.cross_size()) == (0, 1)


cases.run(globals())
