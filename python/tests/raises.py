"""One rank fails while the others wait for it."""
import torch

import gradwire.torch as gw

gw.init()
gw.barrier()
if gw.rank() == 1:
    raise ValueError("no such label")
gw.allreduce(torch.ones(1000), "loss")
