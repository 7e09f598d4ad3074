"""Messages from point to point, objects, barriers, and groups of some ranks."""
import datetime

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

from tests.product.inputs import combined, given, me, world
from tests.product.runner import Cases
from tests.product.values import close

cases = Cases()


# ---- from point to point ----

def ring():
    return (me() + 1) % world(), (me() - 1) % world()


@cases.case(dtype=("float32", "int64", "bool", "complex64"))
def send_and_receive(dtype):
    after, before = ring()
    x = torch.zeros(5, dtype=getattr(torch, dtype))
    if me() % 2 == 0:
        dist.send(given(me(), dtype), after)
        assert dist.recv(x, before) == before
    else:
        assert dist.recv(x, before) == before
        dist.send(given(me(), dtype), after)
    close(x, given(before, dtype))


@cases.case()
def messages_with_tags():
    """Received in another order than they were sent in."""
    after, before = ring()
    got = [torch.zeros(5) for _ in range(3)]
    receives = [dist.irecv(got[t], before, tag=t) for t in (2, 0, 1)]
    sends = [dist.isend(given(me()) * (t + 1), after, tag=t) for t in range(3)]
    for work in receives + sends:
        work.wait()
    close(got, [given(before) * (t + 1) for t in range(3)])


@cases.case()
def receive_from_anybody():
    if me() == 0:
        total, seen = torch.zeros(5), []
        for _ in range(world() - 1):
            x = torch.zeros(5)
            seen.append(dist.recv(x))
            close(x, given(seen[-1]))
            total += x
        assert sorted(seen) == list(range(1, world())), seen
    else:
        dist.send(given(me()), 0)
    x = total if me() == 0 else torch.zeros(5)
    dist.broadcast(x, 0)
    close(x, sum(given(r) for r in range(1, world())), 1e-6)


@cases.case()
def batch_of_sends_and_receives():
    after, before = ring()
    x, y = torch.zeros(5), torch.zeros(3)
    for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, given(me()), after), dist.P2POp(dist.irecv, x, before),
                                        dist.P2POp(dist.isend, given(me(), shape=(3,)), before),
                                        dist.P2POp(dist.irecv, y, after)]):
        work.wait()
    close([x, y], [given(before), given(after, shape=(3,))])


# ---- objects ----

def thing(rank):
    return {"rank": rank, "text": "x" * rank, "numbers": [1.5] * rank}


@cases.case()
def all_gather_of_objects():
    things = [None] * world()
    dist.all_gather_object(things, thing(me()))
    close(things, [thing(r) for r in range(world())])


@cases.case()
def broadcast_of_objects():
    things = [thing(me()), me()]
    dist.broadcast_object_list(things, world() - 1)
    close(things, [thing(world() - 1), world() - 1])
    things = [me() + 10]
    dist.broadcast_object_list(things, 0)
    close(things, [10])


@cases.case()
def gather_and_scatter_of_objects():
    things = [None] * world() if me() == 0 else None
    dist.gather_object(thing(me()), things, 0)
    mine = [None]
    dist.scatter_object_list(mine, things, 0)
    close(mine, [thing(me())])


@cases.case()
def objects_from_point_to_point():
    after, before = ring()
    got = [None, None]
    if me() % 2 == 0:
        dist.send_object_list([thing(me()), me()], after)
        dist.recv_object_list(got, before)
    else:
        dist.recv_object_list(got, before)
        dist.send_object_list([thing(me()), me()], after)
    close(got, [thing(before), before])


# ---- barriers ----

@cases.case(kind=("barrier", "monitored"))
def nobody_leaves_before_the_last_has_come(kind):
    """A key in the store tells who has come. torch.distributed lets only Gloo's groups be monitored: the group is asked
    itself."""
    store = dist.PrefixStore(f"barrier {kind}", dist.distributed_c10d._get_default_store())
    store.set(f"{me()}", "here")
    if kind == "barrier":
        dist.barrier()
    else:
        dist.group.WORLD.monitored_barrier(datetime.timedelta(seconds=60))
    assert all(store.check([f"{r}"]) for r in range(world()))
    x = given(me())
    dist.all_reduce(x)
    close(x, combined("SUM", "float32"))


# ---- groups ----

@cases.case()
def group_of_some_ranks():
    """The last two, in the order of their ranks, and beside it all."""
    some = list(range(world() - 2, world()))
    group = dist.new_group(some)
    x, y = given(me(), "float64"), given(me(), "float64")
    if me() in some:
        dist.all_reduce(x, group=group)
        close(x, sum(given(r, "float64") for r in some))
        assert dist.get_rank(group) == some.index(me())
    dist.all_reduce(y)
    close(y, combined("SUM", "float64"))
    dist.destroy_process_group(group)


@cases.case()
def groups_made_and_destroyed_again():
    for turn in range(3):
        group = dist.new_group(list(range(world())))
        x = given(me(), "float64") * turn
        dist.all_reduce(x, group=group)
        close(x, combined("SUM", "float64") * turn)
        dist.destroy_process_group(group)


@cases.case()
def groups_at_the_same_time():
    """Calls on two groups that are under way together, waited for in the other order."""
    groups = [dist.new_group(list(range(world()))) for _ in range(2)]
    tensors = [given(me(), "float64") * (i + 1) for i in range(2)]
    works = [dist.all_reduce(x, group=g, async_op=True) for x, g in zip(tensors, groups)]
    for work in reversed(works):
        work.wait()
    close(tensors, [combined("SUM", "float64") * (i + 1) for i in range(2)])
    for group in groups:
        dist.destroy_process_group(group)


@cases.case()
def groups_of_a_mesh():
    """Two dimensions, with a broadcast along one and a sum along the other."""
    mesh = init_device_mesh("cpu", (world() // 2, 2), mesh_dim_names=("rows", "columns"))
    row, column = mesh.get_local_rank("rows"), mesh.get_local_rank("columns")
    assert me() == 2 * row + column
    x, y = given(me(), "float64"), given(me(), "float64")
    dist.all_reduce(x, group=mesh.get_group("columns"))
    dist.broadcast(y, group=mesh.get_group("columns"), group_src=1)
    close([x, y], [given(2 * row, "float64") + given(2 * row + 1, "float64"), given(2 * row + 1, "float64")])


@cases.case()
def subgroups_of_two():
    group, _ = dist.new_subgroups(2)
    parts = [torch.zeros(5) for _ in range(2)]
    dist.all_gather(parts, given(me()), group=group)
    close(parts, [given(me() // 2 * 2), given(me() // 2 * 2 + 1)])
