"""Waits for Ctrl-C: rank 0 inside a collective that rank 1 does not make, rank 1 in Python."""
import time

import gradwire.torch as gw

gw.init()
gw.barrier()
print("waits", flush=True)
if gw.rank() == 0:
    gw.barrier()
time.sleep(60)
