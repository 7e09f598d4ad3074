"""Jobs of tests/wheel.sh, run by a Python that has the installed wheel: `installed.py plain|optimizer|group|fsdp2`.
Each compares what its ranks computed with what one process computes."""
import ctypes
import os
import sys

RANK, WORLD = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
STEPS, ROWS = 3, 8


def plain():
    """Without torch: the library sums an array."""
    from gradwire import _library as library
    comm, numbers = ctypes.c_void_p(), (ctypes.c_float * 1000)(*[RANK + 1] * 1000)
    library.check(library.gw_init(comm, library.Options()))
    f32, total = 0, 0
    library.check(library.lib.gw_allreduce(comm, numbers, numbers, len(numbers), f32, total), comm, "allreduce")
    library.check(library.lib.gw_finalize(comm))
    assert set(numbers) == {WORLD * (WORLD + 1) / 2}, set(numbers)


def network():
    import torch
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(12, 24), torch.nn.Tanh(), torch.nn.Linear(24, 4))


def train(model, optimizer, ranks):
    """Steps on the rows of these ranks."""
    import torch
    for step in range(STEPS):
        torch.manual_seed(100 + step)
        rows = torch.randn(WORLD, ROWS, 12)[ranks].reshape(-1, 12)
        optimizer.zero_grad()
        model(rows).square().mean().backward()
        optimizer.step()


def agrees(parameters):
    """With one process that has the rows of all."""
    import torch
    alone = network()
    train(alone, torch.optim.SGD(alone.parameters(), lr=0.1), list(range(WORLD)))
    for got, expected, start in zip(parameters, alone.parameters(), network().parameters()):
        torch.testing.assert_close(got.detach(), expected.detach())
        assert not torch.equal(expected, start)


def optimizer():
    import torch
    import gradwire.torch as gw
    gw.init()
    model = network()
    gw.broadcast_parameters(model.state_dict())
    train(model, gw.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters()), [RANK])
    agrees(model.parameters())


def joined():
    """torch 2.15 finds the backend by the entry point of the package, earlier ones by its import."""
    import torch.distributed as dist
    if not hasattr(dist.Backend, "_ensure_backend_registered"):
        import gradwire.torch  # noqa: F401
    dist.init_process_group("gradwire")
    assert dist.get_world_size() == WORLD and dist.get_backend() == "gradwire"
    return dist


def group():
    import torch
    dist, numbers = joined(), torch.full((1000,), RANK + 1.0)
    dist.all_reduce(numbers)
    assert torch.equal(numbers, torch.full((1000,), WORLD * (WORLD + 1) / 2)), numbers
    model = network()
    wrapped = torch.nn.parallel.DistributedDataParallel(model)
    train(wrapped, torch.optim.SGD(model.parameters(), lr=0.1), [RANK])
    agrees(model.parameters())
    dist.destroy_process_group()


def fsdp2():
    import torch
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    dist, model = joined(), network()
    mesh = init_device_mesh("cpu", (WORLD,))
    for part in (model[0], model[2], model):
        fully_shard(part, mesh=mesh)
    train(model, torch.optim.SGD(model.parameters(), lr=0.1), [RANK])
    agrees([parameter.full_tensor() for parameter in model.parameters()])
    dist.destroy_process_group()


if __name__ == "__main__":
    globals()[sys.argv[1]]()
    print("agrees")
