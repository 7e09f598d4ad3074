"""DistributedDataParallel over gradwire instead of Gloo. Needs torch 2.8.

    gradwire run -n 2 -- python3 ddp_backend.py"""
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
import gradwire.torch                                # not needed from torch 2.15 on
dist.init_process_group("gradwire")                  # instead of "gloo"

torch.manual_seed(dist.get_rank())
model = DistributedDataParallel(torch.nn.Linear(10, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(50):
    x = torch.randn(16, 10)
    optimizer.zero_grad()
    loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
    loss.backward()
    optimizer.step()
if dist.get_rank() == 0:
    print(f"the loss is {loss.item():.2f}")
dist.destroy_process_group()
