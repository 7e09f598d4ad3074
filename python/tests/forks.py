"""Every rank forks: a child that ends as programs do, one that tries to communicate, and the workers of a DataLoader.
None of them may disturb the job."""
import os
import sys
import time

import torch
from torch.utils.data import DataLoader, Dataset

import gradwire.torch as gw


class Squares(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        return torch.tensor([float(index * index), float(gw.rank())])


def ended_well(child):
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def refused(call):
    try:
        call()
    except gw.GradwireError as error:
        return error.status == "INVALID" and f"forked from rank {gw.rank()} " in str(error)
    return False


gw.init()
everyone = torch.full((1000,), float(gw.size() * (gw.size() + 1) / 2))
mine = torch.full((1000,), float(gw.rank() + 1))
assert torch.equal(gw.allreduce(mine, op=gw.Sum), everyone)

if (child := os.fork()) == 0:
    sys.exit(0)  # through atexit and everything else
assert ended_well(child)

if (child := os.fork()) == 0:
    right = refused(lambda: gw.allreduce(mine)) and refused(gw.barrier)
    gw.shutdown()
    sys.exit(0 if right else 1)
assert ended_well(child)

if (child := os.fork()) == 0:
    time.sleep(60)  # it outlives the rank's loop, until it is killed
    sys.exit(0)

for _ in range(3):
    for batch in DataLoader(Squares(), batch_size=16, num_workers=2, multiprocessing_context="fork"):
        assert bool((batch[:, 1] == gw.rank()).all())
        assert torch.equal(gw.allreduce(mine, op=gw.Sum), everyone)

os.kill(child, 9)
os.waitpid(child, 0)
gw.barrier()
if gw.rank() == 0:
    print("all went on", flush=True)
