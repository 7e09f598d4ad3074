"""The process group "gradwire": every call of c10d, with every type and reduction, gives what one process computes from
the inputs of all ranks."""
import datetime
import functools
import importlib.util
import os
import tempfile
import time

import torch
import torch.distributed as dist

import cases
import gradwire.torch as gw
from gradwire.torch.process_group import flight
from gradwire.torch.tensors import DTYPES
from groups import begin, in_a_group, store

Op = dist.ReduceOp
WHOLE = [t for t in DTYPES if not t.is_floating_point and t is not torch.bool]
FLOATS = [t for t in DTYPES if t.is_floating_point and t.itemsize > 1]
EIGHT_BITS = [t for t in DTYPES if t.is_floating_point and t.itemsize == 1]
REAL = [Op.SUM, Op.AVG, Op.MIN, Op.MAX, Op.PRODUCT]
BITS = [Op.BAND, Op.BOR, Op.BXOR]
COMPLEX = [torch.complex64, torch.complex128]


def values(rank, dtype, shape=(7,)):
    """What a rank has: small numbers, so that every sum and product is exact."""
    some = torch.arange(torch.Size(shape).numel()).reshape(shape)
    if dtype is torch.bool:
        return (some + rank) % 3 == 0
    if dtype.is_complex:
        return torch.complex((some + rank).double(), (some * rank - 2).double()).to(dtype)
    return ((some * (rank + 2) + rank) % 3 + 1).to(torch.int64).to(dtype)


def combined(op, inputs):
    """By one process, in float64 or int64."""
    first, wide = inputs[0], torch.complex128 if inputs[0].is_complex() else torch.float64
    if first.dtype is torch.bool:
        either, both = torch.stack(inputs).any(0), torch.stack(inputs).all(0)
        return {Op.SUM: either, Op.MAX: either, Op.BOR: either, Op.MIN: both, Op.PRODUCT: both, Op.BAND: both,
                Op.BXOR: torch.stack(inputs).sum(0) % 2 == 1}[op]
    if op in BITS:
        one = {Op.BAND: torch.bitwise_and, Op.BOR: torch.bitwise_or, Op.BXOR: torch.bitwise_xor}[op]
        return functools.reduce(one, [t.to(torch.int64) for t in inputs]).to(first.dtype)
    stack = torch.stack([t.to(wide) for t in inputs])
    result = {Op.SUM: lambda: stack.sum(0), Op.AVG: lambda: stack.sum(0) / len(inputs), Op.MIN: lambda: stack.amin(0),
              Op.MAX: lambda: stack.amax(0), Op.PRODUCT: lambda: stack.prod(0)}[op]()
    return (result if wide.is_complex or first.dtype.is_floating_point else result.trunc()).to(first.dtype)


def pairs():
    yield from ((dtype, op) for dtype in WHOLE for op in REAL + BITS)
    yield from ((dtype, op) for dtype in FLOATS + EIGHT_BITS for op in REAL)
    yield from ((torch.bool, op) for op in [Op.SUM, Op.MIN, Op.MAX, Op.PRODUCT] + BITS)
    yield from ((dtype, op) for dtype in COMPLEX for op in (Op.SUM, Op.AVG))


def everybody(dtype, shape=(7,)):
    return [values(rank, dtype, shape) for rank in range(gw.size())]


def same(got, wanted, what):
    """Numbers of 8 and 16 bits are rounded once."""
    if got.dtype.is_floating_point and got.dtype.itemsize < 4:
        got, wanted = got.float(), wanted.float()
    assert got.dtype == wanted.dtype and got.shape == wanted.shape, f"{what}: {got.dtype} {got.shape}"
    if got.dtype.is_floating_point or got.is_complex():
        torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-6, msg=lambda m: f"{what}: {m}")
    else:
        assert torch.equal(got, wanted), f"{what}: {got} is not {wanted}"


@in_a_group
def test_reductions_of_every_type():
    me, n = gw.rank(), gw.size()
    for dtype, op in pairs():
        inputs, what = everybody(dtype), f"{dtype} {op}"
        wanted, mine = combined(op, inputs), inputs[me].clone()
        dist.group.WORLD.allreduce([mine], op).wait()
        same(mine, wanted, f"allreduce {what}")
        mine = inputs[me].clone()
        options = dist.ReduceOptions()
        options.reduceOp, options.rootRank = op, n - 1
        dist.group.WORLD.reduce([mine], options).wait()
        if me == n - 1:
            same(mine, wanted, f"reduce {what}")
        out, parts = torch.empty_like(mine), [[values(r + p, dtype) for p in range(n)] for r in range(n)]
        dist.reduce_scatter(out, parts[me], op)
        same(out, combined(op, [parts[r][me] for r in range(n)]), f"reduce_scatter {what}")
        dist.group.WORLD._reduce_scatter_base(out, torch.cat(parts[me]), scatter_options(op)).wait()
        same(out, combined(op, [parts[r][me] for r in range(n)]), f"_reduce_scatter_base {what}")


def scatter_options(op):
    options = dist.ReduceScatterOptions()
    options.reduceOp = op
    return options


@in_a_group
def test_scaled_sums():
    n = gw.size()
    for dtype in FLOATS:
        for factor in (0.5, torch.tensor([0.25])):
            x = values(gw.rank(), dtype)
            dist.all_reduce(x, dist._make_nccl_premul_sum(factor))
            same(x, (combined(Op.SUM, everybody(torch.float64)) * float(factor)).to(dtype), f"premul_sum {dtype}")
    cases.refused("sums and averages only", dist.group.WORLD.allreduce, [torch.ones(2, dtype=torch.complex64)], Op.MAX)
    one = torch.ones(1)  # torch's short forms
    dist.group.WORLD.reduce(one, 0).wait()
    assert gw.rank() or one.item() == n
    dist.group.WORLD.broadcast(one, 0).wait()
    dist.group.WORLD.allreduce(one, Op.MAX).wait()
    assert one.item() == n
    x = torch.ones(n)
    cases.refused("avg", dist.all_reduce, x > 0, Op.AVG)  # a call that is refused leaves the group as it was
    dist.all_reduce(x)
    assert x.tolist() == [n] * n


@in_a_group
def test_moves_of_every_type():
    me, n = gw.rank(), gw.size()
    for dtype in list(DTYPES) + COMPLEX + [torch.complex32]:
        inputs = [values(r, torch.complex64 if dtype is torch.complex32 else dtype).to(dtype) for r in range(n)]
        mine = inputs[me]
        check = functools.partial(bytes_same, dtype)
        x = mine.clone()
        dist.broadcast(x, n - 1)
        check(x, inputs[-1])
        parts = [torch.empty_like(mine) for _ in range(n)]
        dist.all_gather(parts, mine)
        check(torch.cat(parts), torch.cat(inputs))
        whole = torch.empty(7 * n, dtype=dtype)
        dist.group.WORLD._allgather_base(whole, mine).wait()
        check(whole, torch.cat(inputs))
        dist.gather(mine, parts if me == 0 else None)
        check(torch.cat(parts), torch.cat(inputs))
        dist.scatter(x, inputs if me == n - 1 else None, src=n - 1)
        check(x, mine)
        dist.all_to_all(parts, [mine] * n)
        check(torch.cat(parts), torch.cat(inputs))
        dist.all_to_all_single(whole, torch.cat([mine] * n))
        check(whole, torch.cat(inputs))
        if n > 1:
            request = dist.isend(mine, (me + 1) % n)
            dist.recv(x, (me - 1) % n)
            request.wait()
            check(x, inputs[(me - 1) % n])


def bytes_same(dtype, got, wanted):
    assert got.dtype is dtype and torch.equal(got.view(torch.uint8), wanted.view(torch.uint8)), dtype


@in_a_group
def test_uneven_parts():
    me, n = gw.rank(), gw.size()
    shapes = [(r + 1, 3) for r in range(n)]
    outs = [torch.empty(shape) for shape in shapes]
    dist.all_gather(outs, torch.full(shapes[me], float(me)))
    assert all(torch.equal(t, torch.full(s, float(r))) for r, (t, s) in enumerate(zip(outs, shapes)))
    out = torch.empty(shapes[me])
    dist.reduce_scatter(out, [torch.full(s, float(me + r)) for r, s in enumerate(shapes)])
    assert torch.equal(out, torch.full(shapes[me], float(n * me + n * (n - 1) // 2)))
    going, coming = [(me + r) % 3 for r in range(n)], [(me + r) % 3 for r in range(n)]
    send, got = torch.arange(sum(going) * 2.0).view(-1, 2) + 100 * me, torch.empty(sum(coming), 2)
    dist.all_to_all_single(got, send, coming, going)
    wanted = []
    for r in range(n):
        rows = [(r + p) % 3 for p in range(n)]
        wanted.append((torch.arange(sum(rows) * 2.0).view(-1, 2) + 100 * r).split(rows)[me])
    assert torch.equal(got, torch.cat(wanted))
    outs = [torch.empty(r + me, 2) for r in range(n)]
    dist.all_to_all(outs, [torch.full((me + r, 2), 10.0 * me + r) for r in range(n)])
    assert all(torch.equal(t, torch.full((r + me, 2), 10.0 * r + me)) for r, t in enumerate(outs))
    cases.refused("elements", dist.all_gather, [torch.empty(2)] * n, torch.empty(3))
    cases.refused("one for each is wanted", dist.group.WORLD.allgather, [[torch.empty(2)] * (n + 1)], [torch.empty(2)])
    cases.refused("different types", dist.group.WORLD.allgather, [[torch.empty(2)] * n], [torch.ones(2).int()])


@in_a_group
def test_tensors_in_any_order_of_memory():
    me, n = gw.rank(), gw.size()
    rows = torch.arange(6.0).view(2, 3)
    turned = (rows + me).t().contiguous().t()  # the same values in another order
    dist.all_reduce(turned)
    assert torch.equal(turned, n * rows + n * (n - 1) // 2)
    strided = torch.zeros(4, 6)[::2, ::2]
    dist.broadcast(strided if me else strided.copy_(rows), 0)
    assert torch.equal(strided, rows)
    whole = torch.zeros(3, 2 * n).t()
    dist.group.WORLD._allgather_base(whole, turned).wait()
    assert torch.equal(whole, torch.cat([turned] * n))
    parts = list(torch.zeros(n, 3, 2))
    dist.all_gather([part.t() for part in parts], rows + me)
    assert all(torch.equal(part.t(), rows + r) for r, part in enumerate(parts))
    weight = torch.nn.Parameter(torch.full((3, 2), float(me)))
    dist.broadcast(weight, n - 1)
    assert weight.requires_grad and weight.tolist() == [[n - 1] * 2] * 3
    with torch.inference_mode():
        parts = [torch.empty(2) for _ in range(n)]
        work = dist.all_gather(parts, torch.full((2,), float(me)), async_op=True)
    work.wait()
    assert [part[0].item() for part in parts] == list(range(n))
    leaf = torch.nn.Parameter(torch.zeros(6, 2)[::2])  # which has to be copied, and takes part in autograd
    dist.broadcast(leaf if me else leaf.detach().fill_(3), 0)
    (leaf * leaf).sum().backward()
    assert leaf.grad.tolist() == [[6] * 2] * 3
    conjugate = torch.tensor([1 + 2j]).conj()
    dist.group.WORLD.allreduce([conjugate]).wait()
    assert conjugate.tolist() == [n * (1 - 2j)]
    empty = torch.empty(0)
    dist.all_reduce(empty)
    dist.all_gather([torch.empty(0) for _ in range(n)], empty)
    cases.refused("host memory", dist.group.WORLD.allreduce, [torch.empty(2, device="meta")])
    cases.refused("only all_reduce takes sparse", dist.group.WORLD.broadcast, [torch.ones(2).to_sparse()])


@in_a_group
def test_many_tensors_at_once():
    me, n = gw.rank(), gw.size()
    tensors = [torch.full((k,), float(me + k)) for k in range(1, 6)] + [torch.tensor([me]), torch.tensor([2 * me])]
    dist.group.WORLD.allreduce_coalesced(tensors).wait()
    total = n * (n - 1) // 2
    assert all(torch.equal(tensors[k - 1], torch.full((k,), float(total + n * k))) for k in range(1, 6))
    assert [t.item() for t in tensors[5:]] == [total, 2 * total]
    outs, ins = [torch.empty(n * k) for k in (1, 3)], [torch.full((k,), float(me)) for k in (1, 3)]
    dist.group.WORLD.allgather_into_tensor_coalesced(outs, ins).wait()
    assert all(torch.equal(t, torch.arange(float(n)).repeat_interleave(k)) for t, k in zip(outs, (1, 3)))
    larges = [torch.arange(float(n)).repeat_interleave(k) for k in (1, 3)]
    dist.group.WORLD.reduce_scatter_tensor_coalesced(ins, larges).wait()
    assert all(t.tolist() == [n * me] * t.numel() for t in ins)
    lists = [[torch.empty(2), torch.empty(1)] for _ in range(n)]
    dist.group.WORLD.allgather_coalesced(lists, [torch.full((2,), float(me)), torch.full((1,), -float(me))]).wait()
    assert [pair[0][0].item() for pair in lists] == list(range(n)) and lists[n - 1][1].item() == 1 - n
    x, y = torch.ones(1), torch.ones(2)
    with dist._coalescing_manager(async_ops=True) as manager:
        dist.all_reduce(x)
        dist.all_reduce(y)
    manager.wait()
    assert x.tolist() + y.tolist() == [n] * 3


@in_a_group
def test_messages():
    me, n = gw.rank(), gw.size()
    if n == 1:
        return
    left, right = (me - 1) % n, (me + 1) % n
    a, b = torch.empty(3), torch.empty(3)
    # The receiver takes the second tag first.
    requests = [dist.isend(torch.full((3,), 10.0 * tag * me), right, tag=tag) for tag in (1, 2)]
    dist.recv(b, left, tag=2)
    dist.recv(a, left, tag=1)
    [request.wait() for request in requests]
    assert a.tolist() == [10.0 * left] * 3 and b.tolist() == [20.0 * left] * 3
    operations = [dist.P2POp(dist.isend, torch.tensor([float(me)]), right), dist.P2POp(dist.irecv, a[:1], left)]
    [request.wait() for request in dist.batch_isend_irecv(operations)]
    assert a[0] == left
    dist.group.WORLD._start_coalescing(torch.device("cpu"))
    dist.isend(torch.tensor([7.0 + me]), right), dist.irecv(b[:1], left)
    dist.group.WORLD._end_coalescing(torch.device("cpu")).wait()
    assert b[0] == 7 + left
    if me:
        dist.send(torch.tensor([float(me)]), 0, tag=5)
    else:
        seen = {}
        for _ in range(1, n):
            source = dist.recv(one := torch.empty(1), tag=5)
            seen[source] = one.item()
        assert seen == {r: float(r) for r in range(1, n)}


@in_a_group
def test_sparse_sums():
    me, n = gw.rank(), gw.size()
    coo = functools.partial(torch.sparse_coo_tensor, check_invariants=True)
    inputs = [coo([[r, n, n], [0, 1, 1]], [1.0, float(r), 1.0], (n + 1, 2)) for r in range(n)]
    for op, divisor in ((Op.SUM, 1), (Op.AVG, n)):
        x = inputs[me].clone()
        dist.all_reduce(x, op)
        torch.testing.assert_close(x.to_dense(), sum(t.to_dense() for t in inputs) / divisor)
    rows = coo([[0]], [[1.0, 2.0]], (3, 2)) if me == 0 else torch.zeros(3, 2).to_sparse(1)  # most have nothing
    dist.all_reduce(rows)
    assert rows.to_dense().tolist() == [[1, 2], [0, 0], [0, 0]]
    cases.refused("sums and averages only", dist.all_reduce, inputs[me], Op.MAX)


@in_a_group
def test_works_and_futures():
    me, n = gw.rank(), gw.size()
    x = torch.full((1000,), float(me))
    work = dist.all_reduce(x, async_op=True)
    assert work.wait() and work.is_completed() and work.is_success() and work.exception() is None
    assert work.result()[0] is x and x[0] == n * (n - 1) // 2
    heard = []
    future = dist.all_reduce(torch.ones(5), async_op=True).get_future()  # nobody keeps tensor or work
    future.then(lambda f: heard.append(f.value()[0].tolist()))
    until = time.monotonic() + 30
    while not heard and time.monotonic() < until:  # nothing else is called
        time.sleep(0.01)
    assert heard == [[n] * 5]
    # A callback may wait for the future of another call.
    chained = dist.all_reduce(torch.ones(1), async_op=True).get_future().then(
        lambda f: dist.all_reduce(f.value()[0], async_op=True).get_future().wait()[0].item())
    assert chained.wait() == n * n
    for _ in range(100):  # more than are looked at
        dist.all_reduce(torch.ones(10), async_op=True)
    before = dist.group.WORLD._get_sequence_number_for_group()
    dist.barrier()
    assert dist.group.WORLD._get_sequence_number_for_group() == before + 1
    if n > 1 and me == 0:
        late = dist.irecv(y := torch.zeros(1), 1)
        assert not late.is_completed()
        assert "Timed out" in str(cases.refused("gave up after 0.1 s", late.wait, datetime.timedelta(seconds=0.1)))
        dist.send(torch.ones(1), 1)
        late.wait()
        assert y.item() == 3
    elif me == 1:
        dist.recv(torch.empty(1), 0)
        dist.send(torch.full((1,), 3.0), 0)


@in_a_group
def test_a_monitored_barrier():
    group, brief = dist.group.WORLD, datetime.timedelta(seconds=0.5)
    group.monitored_barrier(datetime.timedelta(seconds=30))
    gw.barrier()
    if gw.size() == 1:
        return
    if gw.rank() == 0:
        names = "Ranks 1, 2" if gw.size() > 2 else "Rank 1"
        cases.refused(f"{names}", group.monitored_barrier, brief, wait_all_ranks=True)
    gw.barrier()
    dist.barrier()  # the group goes on


@in_a_group
def test_groups_of_some_ranks():
    me, n = gw.rank(), gw.size()
    groups = [dist.new_group([r, (r + 1) % n] if n > 1 else [0]) for r in range(n)]
    for r, group in enumerate(groups):
        if dist.get_rank(group) >= 0:
            x = torch.tensor([float(me)])
            dist.all_reduce(x, group=group)
            assert x.item() == (r + (r + 1) % n if n > 1 else 0)
    part = dist.group.WORLD.split_group([r for r in range(n) if r % 2 == me % 2])
    x = torch.ones(1)
    part.allreduce([x]).wait()
    assert x.item() == len(range(me % 2, n, 2)) and part.rank() == me // 2
    for group in groups:
        if dist.get_rank(group) >= 0:
            dist.destroy_process_group(group)


def test_one_group_after_another_over_one_store():
    for size in range(3):
        if gw.rank() == 0:
            time.sleep(0.2)  # the others find what the store has of the group before
        dist.init_process_group("gradwire", store=store(), rank=gw.rank(), world_size=gw.size())
        x = torch.full((size + 1,), 1.0)
        dist.all_reduce(x, async_op=True)
        dist.destroy_process_group()
        assert x.tolist() == [gw.size()] * (size + 1)  # the end of a group completes its calls


@in_a_group
def test_a_forked_child():
    """It is no rank: it may not communicate, and its end means nothing to the group."""
    dist.all_reduce(torch.ones(1), async_op=True).get_future().wait()  # there is a thread that waits, too
    if (child := os.fork()) == 0:
        try:
            dist.all_reduce(torch.ones(1))
        except gw.GradwireError as error:
            dist.destroy_process_group()
            os._exit(f"forked from rank {gw.rank()} " not in str(error))
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    x = torch.ones(1)
    dist.all_reduce(x)
    assert x.item() == gw.size()


@in_a_group
def test_ranges_in_a_trace():
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        dist.all_reduce(torch.ones(3))
        work = dist.broadcast(torch.ones(3), 0, async_op=True)
        work.get_future().wait()
    names = {event.key: event.count for event in profile.key_averages()}
    assert names["gradwire:all_reduce"] == 1 and names["gradwire:broadcast"] == 1, names


@in_a_group
def test_entries_for_torchfrtrace():
    flight.recorder = flight.Recorder(100)
    dist.all_reduce(torch.ones(2, 3))
    dist.broadcast(torch.ones(3), 0, async_op=True).wait()
    if gw.rank() < 2:
        dist.send(torch.ones(1), 1) if gw.rank() == 0 else dist.recv(torch.ones(1), 0)
    folder = gw.broadcast_object(tempfile.mkdtemp(), 0)
    flight.dump(f"{folder}/rank_")
    late = dist.all_reduce(torch.ones(4), async_op=True) if gw.rank() == 0 else None
    states = [(entry["profiling_name"], entry["state"]) for entry in flight.recorder.entries]
    assert states[:2] == [("gloo:all_reduce", "completed"), ("gloo:broadcast", "completed")], states
    assert gw.size() == 1 or late is None or states[-1] == ("gloo:all_reduce", "scheduled"), states
    gw.barrier()
    if gw.rank():
        dist.all_reduce(torch.ones(4))
    elif late.wait() and gw.size() > 1 and importlib.util.find_spec("torch.distributed.flight_recorder"):
        checked_by_torch(folder)
    flight.recorder = None
    gw.barrier()


def checked_by_torch(folder):
    """torchfrtrace finds the collectives in the files of all ranks, and nothing wrong with them."""
    from torch.distributed.flight_recorder.components import builder, config_manager, loader
    arguments = config_manager.JobConfig().parse_args([folder])
    files, version = loader.read_dir(arguments)
    found = builder.build_db(files, arguments, version).collectives
    names = [one.collective_name for one in found]
    assert names == ["gloo:all_reduce", "gloo:broadcast", "gloo:send 0->1"], names
    assert all(one.pass_check and one.collective_state == "completed" for one in found), found


def test_a_deadline():
    begin(timeout=datetime.timedelta(seconds=1))
    kinds = torch._C._distributed_c10d.ErrorType
    if gw.size() > 1 and gw.rank() == 0:
        assert dist.group.WORLD.get_error() == kinds.SUCCESS
        cases.refused("Timed out waiting", dist.all_reduce, torch.ones(1))
        assert dist.group.WORLD.get_error() == kinds.TIMEOUT
        cases.refused("Timed out waiting", dist.all_reduce, torch.ones(1))  # the group has ended
    gw.barrier()
    dist.destroy_process_group()
    begin()
    dist.group.WORLD.set_timeout(datetime.timedelta(seconds=1))
    if gw.size() > 1 and gw.rank() == 0:
        cases.refused("Timed out waiting", dist.barrier)
    gw.barrier()
    dist.destroy_process_group()


def test_an_abort():
    begin()
    if gw.size() > 1 and gw.rank() == 0:
        work = dist.all_reduce(torch.ones(1), async_op=True)
        future = work.get_future()
        dist.group.WORLD.abort()
        cases.refused("abort() was called", work.wait)
        cases.refused("abort() was called", future.wait)
        assert not work.is_success() and "abort()" in str(work.exception())
    gw.barrier()
    dist.destroy_process_group()
    cases.refused("Default process group", check_group)


def check_group():
    try:
        dist.all_reduce(torch.ones(1))
    except ValueError as error:
        raise RuntimeError(str(error)) from None


cases.run(globals())
