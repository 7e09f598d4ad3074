"""A job that its ranks leave and join again and again, each at its own pace."""
import random
import time

import torch

import gradwire.torch as gw

ROUNDS = 40
pace = None
for turn in range(ROUNDS):
    gw.init()
    pace = pace or random.Random(gw.rank())
    total = gw.allreduce(torch.full((1000,), float(gw.rank() + turn)), op=gw.Sum)
    assert total[0] == sum(rank + turn for rank in range(gw.size()))
    for leave in (gw.shutdown, int):
        time.sleep(max(0, pace.random() - 0.5) * 0.05)
        leave()
