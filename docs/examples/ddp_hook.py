"""DistributedDataParallel whose gradients travel by a strategy. The process group stays the script's own.

    gradwire run -n 2 -- python3 ddp_hook.py"""
import os
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
import gradwire.torch as gw

os.environ.setdefault("GRADWIRE_MASTER_PORT", str(int(os.environ["MASTER_PORT"]) + 1))  # the group listens at MASTER_PORT
dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
model = torch.nn.Linear(10, 1)
gw.init()
model = DistributedDataParallel(model)               # any process group
state = gw.HookState("compress=topk:ratio=0.01", model.named_parameters())
model.register_comm_hook(state, gw.ddp_hook)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(50):
    x = torch.randn(16, 10)
    optimizer.zero_grad()
    loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
    loss.backward()
    optimizer.step()
if gw.rank() == 0:
    print(f"the loss is {loss.item():.2f}")
dist.destroy_process_group()
