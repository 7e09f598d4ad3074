"""One rank fails while the others wait for it: by an exception of its own, or (`refused`) of gradwire's."""
import atexit
import os
import sys
import time

import torch

import gradwire.torch as gw

gw.init()
gw.barrier()
if gw.rank() == 1 and "refused" in sys.argv:
    gw.allreduce(torch.zeros(2).to_sparse())
if gw.rank() == 1:
    if os.environ.get("SLOW_END"):
        atexit.register(time.sleep, 2)
    raise ValueError("no such label")
gw.allreduce(torch.ones(1000), name="loss")
