"""python3 -m tests.product FAMILY [BACKEND]: optimizer, hook or group; the backend of DDP's group is gradwire."""
import importlib
import sys
import warnings

import torch
import torch.distributed as dist

from tests.product import runner

FILES = {"optimizer": ("optimizer", "features", "modules"), "hook": ("hook",),
         "group": ("collectives", "messages", "functional", "replication", "sharded", "parallel")}


def begin_group(backend, job):
    """The default group."""
    if backend == "still":
        importlib.import_module("tests.product.still")
    dist.init_process_group(backend, store=dist.PrefixStore("group", job.store), rank=job.rank, world_size=job.size)


def main(family, backend="gradwire"):
    assert family in FILES, __doc__
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", FutureWarning)  # of torch about its own
    job = runner.Runner()
    if family != "optimizer":
        begin_group("still" if family == "group" and runner.NEGATIVE else backend, job)
    cases = runner.Cases()
    for name in FILES[family]:
        some = importlib.import_module(f"tests.product.{name}").cases.functions
        assert not cases.functions.keys() & some.keys(), "two cases have one name"
        cases.functions.update(some)
    code = job.verdict(*job.run(cases.wanted()))
    if family != "optimizer":
        dist.destroy_process_group()
    return code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
