#!/usr/bin/env python3
"""python_buckets.py BUILD [BEFORE_TREE BEFORE_BUILD] [--turns N]: an all-reduce of a bucket of DistributedDataParallel
over the process group "gradwire", two ranks on this host, in ms.

    make && bench/python_buckets.py build
    git worktree add ../before COMMIT && make -C ../before && bench/python_buckets.py build ../before ../before/build

A model of four layers of 25 MiB trains; a communication hook times dist.all_reduce of each bucket of 25 MiB where DDP
made it, and beside it of a tensor of the same size in memory of gw_alloc. Both are rewritten before, and the ranks pass
a barrier. The time of a call is that of the slowest rank. Jobs of the two builds take turns; a figure is the median of
the turns' medians. The first steps are not counted. Results are checked. GRADWIRE_PYTHON chooses the Python, which has
PyTorch (scripts/torch)."""
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve()
SIDE, LAYERS, SKIPPED, STEPS = 2560, 4, 6, 14  # a layer has SIDE * SIDE * 4 bytes: 25 MiB


def rank():
    import torch
    import torch.distributed as dist

    import gradwire.torch  # noqa: F401
    from gradwire._library import lib
    from gradwire.torch.reducer import memory

    torch.set_num_threads(1)
    dist.init_process_group("gradwire")
    me, world = dist.get_rank(), dist.get_world_size()
    count = SIDE * SIDE
    ours = memory(lib.gw_alloc(dist.group.WORLD.communicator.comm, 4 * count), count, torch.float32)
    times = {"DDP's bucket": [], "gw_alloc": []}

    def reduce(tensor, name, counted):
        tensor.fill_(me + 1)
        dist.barrier()
        begun = time.perf_counter()
        dist.all_reduce(tensor)
        took = torch.tensor([time.perf_counter() - begun])
        assert (tensor == world * (world + 1) / 2).all(), f"wrong sum in {name}"
        dist.all_reduce(took, op=dist.ReduceOp.MAX)
        if counted:
            times[name].append(1e3 * took.item())

    def hook(step, bucket):
        buffer = bucket.buffer()
        if buffer.numel() == count:
            turns = [(buffer, "DDP's bucket"), (ours, "gw_alloc")]
            for tensor, name in turns if step[0] % 2 else turns[::-1]:
                reduce(tensor, name, step[0] >= SKIPPED)
        done = torch.futures.Future()
        done.set_result(buffer)
        return done

    model = torch.nn.Sequential(*[torch.nn.Linear(SIDE, SIDE, bias=False) for _ in range(LAYERS)])
    model, step = torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=25), [0]
    model.register_comm_hook(step, hook)
    for step[0] in range(STEPS):
        model(torch.ones(2, SIDE)).sum().backward()
    if me == 0:
        print(json.dumps({name: statistics.median(some) for name, some in times.items()}), flush=True)
    dist.destroy_process_group()


def turn(tree, build):
    python = os.environ.get("GRADWIRE_PYTHON") or subprocess.check_output([HERE.parent.parent / "scripts/torch"],
                                                                           text=True).strip()
    environment = dict(os.environ, PYTHONPATH=str(tree / "python"), GRADWIRE_LIBRARY=str(build / "libgradwire.so"))
    said = subprocess.run([build / "gradwire", "run", "-n", "2", "--no-prefix", "--", python, HERE, "--rank"],
                          env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout
    return json.loads(said.splitlines()[-1])


def main(arguments):
    turns = 7
    if "--turns" in arguments:
        at = arguments.index("--turns")
        turns = int(arguments[at + 1])
        del arguments[at:at + 2]
    if len(arguments) not in (1, 3):
        sys.exit(__doc__)
    trees = {"now": (HERE.parent.parent, pathlib.Path(arguments[0]).resolve())}
    if len(arguments) == 3:
        trees["before"] = tuple(pathlib.Path(path).resolve() for path in arguments[1:])
    rows = {}
    for _ in range(turns):
        for name, (tree, build) in trees.items():
            for memory, ms in turn(tree, build).items():
                rows.setdefault((name, memory), []).append(ms)
    for (name, memory), ms in rows.items():
        print(f"{name:7} {memory:13} {statistics.median(ms):7.2f} ms  ({min(ms):.2f} to {max(ms):.2f})")

    def ratio(a, b):
        return statistics.median(x / y for x, y in zip(rows[a], rows[b]))
    bucket = ("now", "DDP's bucket")
    print(f"DDP's bucket / gw_alloc: {ratio(bucket, ('now', 'gw_alloc')):.3f}")
    if "before" in trees:
        print(f"before / now: {ratio(('before', bucket[1]), bucket):.2f}")


if __name__ == "__main__":
    rank() if "--rank" in sys.argv else main(sys.argv[1:])
