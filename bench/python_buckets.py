#!/usr/bin/env python3
"""python_buckets.py BUILD [BEFORE_TREE BEFORE_BUILD] [--turns N]: an all-reduce of a bucket of DistributedDataParallel
over the process group "gradwire", two ranks on this host, in ms.

    make && bench/python_buckets.py build
    git worktree add ../before COMMIT && make -C ../before && bench/python_buckets.py build ../before ../before/build

A model of three layers of 25 MiB trains; a communication hook times dist.all_reduce of each bucket of 25 MiB where DDP
made it, and beside it of a tensor of the same size in memory of gw_alloc. Both are rewritten before, and the ranks pass
a barrier. The time of a call is that of the slowest rank. The jobs of the two builds run at once and take turns of two
steps; a figure is the median of the turns' medians, a ratio the median of the turns' ratios. The first turns are not
counted. Results are checked. GRADWIRE_PYTHON chooses the Python, which has PyTorch (scripts/torch)."""
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve()
SIDE, LAYERS, SKIPPED, STEPS = 2560, 3, 2, 2  # a layer has SIDE * SIDE * 4 bytes: 25 MiB; turns, steps of a turn


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

    def reduce(tensor, name):
        tensor.fill_(me + 1)
        dist.barrier()
        begun = time.perf_counter()
        dist.all_reduce(tensor)
        took = torch.tensor([time.perf_counter() - begun])
        assert (tensor == world * (world + 1) / 2).all(), f"wrong sum in {name}"
        dist.all_reduce(took, op=dist.ReduceOp.MAX)
        times[name].append(1e3 * took.item())

    def hook(step, bucket):
        buffer = bucket.buffer()
        if buffer.numel() == count:
            turns = [(buffer, "DDP's bucket"), (ours, "gw_alloc")]
            for tensor, name in turns if step[0] % 2 else turns[::-1]:
                reduce(tensor, name)
        done = torch.futures.Future()
        done.set_result(buffer)
        return done

    model = torch.nn.Sequential(*[torch.nn.Linear(SIDE, SIDE, bias=False) for _ in range(LAYERS)])
    model, step = torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=25), [0]
    model.register_comm_hook(step, hook)
    orders = open(os.environ["ORDERS"]) if me == 0 else None
    while True:
        goes_on = torch.tensor([me == 0 and orders.readline() != ""], dtype=torch.int32)
        dist.broadcast(goes_on, 0)
        if not goes_on:
            break
        for step[0] in range(step[0] + 1, step[0] + 1 + STEPS):
            model(torch.ones(2, SIDE)).sum().backward()
        if me == 0:
            print(json.dumps({name: statistics.median(some) for name, some in times.items()}), flush=True)
        for some in times.values():
            some.clear()
    dist.destroy_process_group()


class Job:
    """The two ranks of one build. They sleep between turns."""

    def __init__(self, tree, build, python, orders):
        os.mkfifo(orders)
        environment = dict(os.environ, PYTHONPATH=str(tree / "python"), ORDERS=str(orders),
                           GRADWIRE_LIBRARY=str(build / "libgradwire.so"))
        self.process = subprocess.Popen([build / "gradwire", "run", "-n", "2", "--no-prefix", "--deadline", "300", "--",
                                         python, HERE, "--rank"], env=environment, stdout=subprocess.PIPE, text=True)
        self.orders = os.fdopen(os.open(orders, os.O_RDWR), "w")  # does not wait for the reader

    def turn(self):
        print("go", file=self.orders, flush=True)
        line = self.process.stdout.readline()
        if not line:
            sys.exit("python_buckets: a job has failed")
        return json.loads(line)

    def end(self):
        self.orders.close()
        self.process.wait()


def main(arguments):
    turns = 9
    if "--turns" in arguments:
        at = arguments.index("--turns")
        turns = int(arguments[at + 1])
        del arguments[at:at + 2]
    if len(arguments) not in (1, 3):
        sys.exit(__doc__)
    trees = {"now": (HERE.parent.parent, pathlib.Path(arguments[0]).resolve())}
    if len(arguments) == 3:
        trees["before"] = tuple(pathlib.Path(path).resolve() for path in arguments[1:])
    rows, scratch = {}, pathlib.Path(tempfile.mkdtemp())
    python = os.environ.get("GRADWIRE_PYTHON") or subprocess.check_output([HERE.parent.parent / "scripts/torch"],
                                                                           text=True).strip()
    jobs = {name: Job(tree, build, python, scratch / name) for name, (tree, build) in trees.items()}
    for turn in range(SKIPPED + turns):
        for name, job in jobs.items():
            for memory, ms in job.turn().items():
                if turn >= SKIPPED:
                    rows.setdefault((name, memory), []).append(ms)
    for job in jobs.values():
        job.end()
    shutil.rmtree(scratch)
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
