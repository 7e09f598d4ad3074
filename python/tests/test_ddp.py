"""DistributedDataParallel over the hook, and over the process group, trains to the parameters of one process that has
the joined batch."""
import copy
import functools
import gc
import itertools
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import cases
import gradwire.torch as gw

STEPS, BATCH = 4, 6


def network():
    torch.manual_seed(7)
    return torch.nn.Sequential(torch.nn.Conv2d(1, 6, 3), torch.nn.ReLU(), torch.nn.Flatten(),
                               torch.nn.Linear(6 * 36, 300), torch.nn.Tanh(), torch.nn.Linear(300, 5)).double()


def batch(step):
    generator = torch.Generator().manual_seed(step)
    size = BATCH * gw.size()
    return torch.randn(size, 1, 8, 8, generator=generator).double(), torch.randint(5, (size,), generator=generator)


def train(model, mine, wrap=lambda optimizer: optimizer):
    optimizer = wrap(torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))
    for step in range(STEPS):
        x, y = (t.to(next(model.parameters()).dtype) if t.is_floating_point() else t for t in batch(step))
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x[mine]), y[mine]).backward()
        optimizer.step()
    return model


def agrees(model):
    reference = train(network(), slice(None))
    for (name, a), b in zip(reference.named_parameters(), model.parameters()):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-12, msg=name)


def part():
    return slice(gw.rank() * BATCH, (gw.rank() + 1) * BATCH)


@functools.lru_cache
def store():
    """One for all groups of this file: a second one at the same port may meet ranks that still leave the first."""
    server = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False) if gw.rank() == 0 else None
    port = gw.broadcast_object(server.port if server else None, 0)
    return server or dist.TCPStore("127.0.0.1", port)


def group(backend, numbers=itertools.count()):
    dist.init_process_group(backend, store=dist.PrefixStore(f"{next(numbers)}/", store()), rank=gw.rank(),
                            world_size=gw.size())


def test_hook():
    group("gloo")
    model = DistributedDataParallel(network(), bucket_cap_mb=0.1)  # several buckets
    model.register_comm_hook(None, gw.ddp_hook)
    agrees(train(model, part()).module)
    dist.destroy_process_group()


def test_hook_with_a_strategy():
    group("gloo")
    model = DistributedDataParallel(network(), bucket_cap_mb=0.1)
    model.register_comm_hook(gw.HookState("schedule=wfbp:fuse=20K", model.named_parameters()), gw.ddp_hook)
    agrees(train(model, part()).module)
    for codec in ("topk:ratio=0.05", "onebit", "dgc:ratio=0.05,momentum=0"):
        model = DistributedDataParallel(network().float(), bucket_cap_mb=0.1)
        model.register_comm_hook(gw.HookState(f"compress={codec}", model.named_parameters()), gw.ddp_hook)
        hooked, wrapped = train(model, part()).module, network().float()
        train(wrapped, part(), lambda o: gw.DistributedOptimizer(o, wrapped.named_parameters(),
                                                                 strategy=f"compress={codec}"))
        # What the hook sends is what the optimiser sends, residuals included.
        for (name, a), b in zip(hooked.named_parameters(), wrapped.named_parameters()):
            torch.testing.assert_close(a, b[1], rtol=1e-5, atol=1e-6, msg=f"{codec}: {name}")
    odd = DistributedDataParallel(network())
    odd.register_comm_hook(gw.HookState("sync=periodic", odd.named_parameters()), gw.ddp_hook)
    cases.refused("works on weights", train, odd, part())
    odd = DistributedDataParallel(network().float())  # the hook does not see the optimiser, whose momentum is its own
    odd.register_comm_hook(gw.HookState("compress=dgc:momentum=0.9", odd.named_parameters()), gw.ddp_hook)
    cases.refused("use dgc:momentum=0", train, odd, part())
    dist.destroy_process_group()


def test_process_group():
    group("gradwire")
    model = network()
    if gw.rank():
        torch.nn.init.zeros_(model[0].weight)  # DDP brings the first rank's
    agrees(train(DistributedDataParallel(model, bucket_cap_mb=0.1), part()).module)
    # Beside it, a parameter that some ranks do not use.
    unused = torch.nn.ModuleList([torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)])
    wrapped = DistributedDataParallel(Chooses(copy.deepcopy(unused)), find_unused_parameters=True)
    wrapped(torch.ones(1, 2), gw.rank() % 2).sum().backward()
    assert all(p.grad is not None for p in wrapped.parameters())


class Chooses(torch.nn.Module):
    def __init__(self, ways):
        super().__init__()
        self.ways = ways

    def forward(self, x, way):
        return self.ways[way](x)


def test_calls_of_the_process_group():
    me, n = dist.get_rank(), dist.get_world_size()
    x = torch.full((3,), float(me))
    dist.all_reduce(x, dist.ReduceOp.MAX)
    assert x.tolist() == [n - 1] * 3
    parts = [torch.empty(2, 2) for _ in range(n)]
    dist.all_gather(parts, torch.full((2, 2), float(me)))
    assert [p[0, 0].item() for p in parts] == list(range(n))
    dist.reduce_scatter(x, [torch.full((3,), float(r)) for r in range(n)])
    assert x.tolist() == [me * n] * 3
    dist.scatter(x, [torch.full((3,), float(r)) for r in range(n)] if me == 1 else None, src=1)
    assert x.tolist() == [me] * 3
    rows, turned = torch.arange(6.0).view(2, 3), torch.zeros(3, 2).t()  # whose memory has another order
    dist.scatter(turned, [rows + r for r in range(n)] if me == 0 else None)
    assert torch.equal(turned, rows + me)
    dist.reduce_scatter(turned, [rows] * n)
    assert torch.equal(turned, n * rows)
    dist._reduce_scatter_base(turned, torch.cat([rows + r for r in range(n)]))
    assert torch.equal(turned, n * (rows + me))
    dist.gather(x, [torch.empty(3) for _ in range(n)] if me == 0 else None)
    into = torch.empty(n)
    dist.all_to_all_single(into, torch.arange(n) + 10.0 * me)
    assert into.tolist() == [10.0 * r + me for r in range(n)]
    dist.reduce(x, 0)
    flag = torch.tensor([me == 1])
    dist.all_reduce(flag)
    assert flag.item()
    things = [None] * n
    dist.all_gather_object(things, {"rank": me})
    assert things[1] == {"rank": 1}
    if me == 0:
        dist.send(torch.arange(4), 1)
    elif me == 1:
        got = torch.empty(4, dtype=torch.int64)
        dist.recv(got, 0)
        assert got.tolist() == [0, 1, 2, 3]
    pair = dist.new_group([0, 1])
    if me < 2:
        y = torch.ones(1)
        dist.all_reduce(y, group=pair)
        assert y.item() == 2
    dist.barrier()
    z = torch.full((2,), 1 + 2j * me)
    dist.all_reduce(z)
    assert z.tolist() == [n + 1j * n * (n - 1)] * 2
    dist.destroy_process_group()


def test_a_group_that_goes_while_calls_are_under_way():
    """The thread that waits for them needs the interpreter, to release tensors and for callbacks."""
    group("gradwire")
    called, x = [], torch.ones(1000000)
    if dist.get_rank() == 1:
        time.sleep(0.3)
    work = dist.all_reduce(x, async_op=True)
    work.get_future().then(lambda _: called.append(True))
    del x, work
    dist.destroy_process_group()
    gc.collect()
    assert called


cases.run(globals())
