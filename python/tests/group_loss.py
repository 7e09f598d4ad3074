"""A rank of a process group is killed: the others learn it from every kind of call, at once and by torch's words."""
import os
import signal
import sys
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing

import gradwire.torch as gw

RANKS, ALLOWED = 3, 20  # seconds, of the 30 s of the deadline


def raises(call):
    try:
        call()
    except gw.GradwireError as error:
        assert error.lost and "Connection closed by peer" in str(error), error
        return
    raise AssertionError("the call succeeded")


def rank_of(rank, path):
    torch.set_num_threads(1)
    dist.init_process_group("gradwire", init_method=f"file://{path}", rank=rank, world_size=RANKS)
    dist.barrier()
    if rank == RANKS - 1:
        os.kill(os.getpid(), signal.SIGKILL)
    began = time.monotonic()
    work = dist.all_reduce(torch.ones(1000), async_op=True)
    future = work.get_future()
    raises(work.wait)
    raises(lambda: dist.all_reduce(torch.ones(1)))
    raises(lambda: dist.recv(torch.ones(1), RANKS - 1))
    try:
        future.wait()
        raise AssertionError("the future has a result")
    except RuntimeError as error:
        assert "Connection closed by peer" in str(error), error
    assert dist.group.WORLD.get_error() == torch._C._distributed_c10d.ErrorType.REMOTE_ERROR
    dist.destroy_process_group()
    assert time.monotonic() - began < ALLOWED


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        context = torch.multiprocessing.get_context("fork")
        ranks = [context.Process(target=rank_of, args=(rank, f"{folder}/store")) for rank in range(RANKS)]
        for process in ranks:
            process.start()
        for process in ranks:
            process.join()
    codes = [process.exitcode for process in ranks]
    assert codes == [0] * (RANKS - 1) + [-signal.SIGKILL], codes
    print("all survivors knew")
    sys.exit(0)
