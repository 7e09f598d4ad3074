"""Tensors that are reduced again and again lie in memory that the other ranks reach: their values, and that nothing else
about them changes."""
import copy
import gc
import io
import os
import pickle

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader

import cases
import gradwire.torch as gw
from gradwire.torch import registered
from groups import in_a_group

LARGE = 1 << 20


def kept():
    return dist.group.WORLD.communicator.registered.kept


def is_kept(tensor):
    return any(address <= tensor.data_ptr() < address + size for address, size in kept())


def reduce(tensor, times=1):
    for _ in range(times):
        tensor.copy_(torch.arange(tensor.numel(), dtype=tensor.dtype).view(tensor.shape) % 100 + gw.rank())
        dist.all_reduce(tensor)
        ranks = gw.size()
        expected = (torch.arange(tensor.numel(), dtype=tensor.dtype) % 100) * ranks + ranks * (ranks - 1) / 2
        assert torch.equal(tensor.view(-1), expected)


@in_a_group
def test_what_is_seen_again_is_registered():
    some, small = torch.empty(LARGE), torch.empty(100)
    for n in range(1, 8):
        reduce(some)
        reduce(small)
        assert is_kept(some) == (n >= registered.THIRD) and not is_kept(small), n
    views = torch.empty(3, LARGE // 2 + 3)
    for row in views:
        reduce(row, 5)
    assert all(is_kept(row) for row in views)
    shared = torch.empty(LARGE).share_memory_()  # refused, and works as before
    reduce(shared, 5)
    assert not is_kept(shared)


@in_a_group
def test_what_is_temporary_is_not():
    for _ in range(40):
        reduce(torch.empty(LARGE))
    assert not kept()


@in_a_group
def test_what_is_gone_is_let_go():
    some = torch.empty(LARGE)
    part = some[5:100]
    reduce(some, 4)
    del some
    dist.all_reduce(torch.zeros(LARGE))
    assert len(kept()) == 1 and is_kept(part)
    del part
    dist.all_reduce(torch.zeros(LARGE))
    assert not kept()


@in_a_group
def test_calls_under_way_keep_their_place():
    some = torch.zeros(LARGE)
    source = some[:LARGE // 2]
    works = [dist.all_reduce(some, async_op=True) for _ in range(8)]
    for work in works:
        work.wait()
    reduce(some, 3)
    assert is_kept(some) and is_kept(source)


@in_a_group
def test_tensors_stay_tensors():
    some = torch.empty(LARGE)
    reduce(some, 4)
    file = io.BytesIO()
    torch.save({"some": some}, file)
    file.seek(0)
    for other in (some.clone(), copy.deepcopy(some), pickle.loads(pickle.dumps(some)), torch.load(file)["some"]):
        assert torch.equal(other, some) and not is_kept(other)
    before = some.clone()
    some.untyped_storage().resize_(8 * LARGE)
    assert torch.equal(some, before)
    some.share_memory_()
    assert torch.equal(some, before)
    reduce(some, 5)


class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 32

    def __getitem__(self, index):
        return torch.full((1000,), float(index))


def ends_as_programs_do(some):
    """The child frees all it has, and uses the memory for something else."""
    child = os.fork()
    if child == 0:
        some = None  # noqa: F841
        blocks = [torch.full((LARGE // 4,), -1.0) for _ in range(20)]
        os._exit(len(blocks) - 20)
    assert os.waitpid(child, 0)[1] == 0


@in_a_group
def test_forked_children_change_nothing():
    some = torch.empty(LARGE)
    reduce(some, 4)
    before = some.clone()
    for batch in DataLoader(Numbers(), batch_size=4, num_workers=1):
        assert batch.shape == (4, 1000)
    ends_as_programs_do(some)
    assert torch.equal(some, before)
    reduce(some, 3)


@in_a_group
def test_buckets_of_ddp_are_registered():
    torch.manual_seed(0)
    model = torch.nn.Sequential(*[torch.nn.Linear(512, 512, bias=False) for _ in range(4)])
    alone = copy.deepcopy(model)
    parallel = torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=1)
    for step in range(6):
        inputs = [torch.randn(8, 512, generator=torch.Generator().manual_seed(step * 10 + r)) for r in range(gw.size())]
        parallel.zero_grad()
        parallel(inputs[gw.rank()]).square().mean().backward()
        alone.zero_grad()
        sum(alone(some).square().mean() for some in inputs).div(gw.size()).backward()
        for mine, theirs in zip(model.parameters(), alone.parameters()):
            torch.testing.assert_close(mine.grad, theirs.grad)
    assert len(kept()) >= 3
    del parallel, model, mine
    gc.collect()
    dist.all_reduce(torch.zeros(LARGE))
    assert not kept()


@in_a_group
def test_tensors_from_the_group_use_memory_again():
    group, addresses = dist.group.WORLD, set()
    for _ in range(10):
        one, other = (group.allocate_tensor(LARGE, dtype=torch.float32, device="cpu") for _ in range(2))
        assert one.data_ptr() != other.data_ptr() and one.shape == (LARGE,)
        addresses |= {one.data_ptr(), other.data_ptr()}
        reduce(one)
        assert is_kept(one)
    assert len(addresses) == len(kept()) <= 4


def sharded(allocates):
    """Gradients of FSDP2's shards after three steps."""
    from torch.distributed.fsdp import fully_shard
    torch.manual_seed(0)
    model = torch.nn.Sequential(*[torch.nn.Linear(512, 512, bias=False) for _ in range(3)])
    for layer in [*model, model]:
        fully_shard(layer)
        layer.set_allocate_memory_from_process_group_for_comm(allocates)
    for step in range(3):
        model.zero_grad()
        model(torch.randn(8, 512, generator=torch.Generator().manual_seed(step * 10 + gw.rank()))).sum().backward()
    return [parameter.grad.to_local().clone() for parameter in model.parameters()]


@in_a_group
def test_fully_sharded_models_take_memory_of_the_group():
    try:
        from torch.distributed.fsdp import FSDPModule
        FSDPModule.set_allocate_memory_from_process_group_for_comm
    except (ImportError, AttributeError):
        return
    alone, ours = sharded(False), sharded(True)
    assert all(torch.equal(a, b) for a, b in zip(alone, ours)) and kept()


@in_a_group
def test_groups_share_what_is_registered():
    some = torch.empty(LARGE)
    part = dist.group.WORLD.split_group(list(range(gw.size())))
    for _ in range(4):
        some.fill_(1)
        part.allreduce([some]).wait()
        assert (some == gw.size()).all()
    assert is_kept(some)
    part.shutdown()
    reduce(some, 2)


cases.run(globals())
