"""The smallest change that makes a script data parallel: the lines with `gw`.

    gradwire run -n 2 -- python3 smallest.py"""
import torch

model = torch.nn.Linear(10, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

import gradwire.torch as gw
gw.init()
optimizer = gw.DistributedOptimizer(optimizer, model.named_parameters())
gw.broadcast_parameters(model.state_dict())

torch.manual_seed(gw.rank())  # each rank has data of its own
for step in range(50):
    x = torch.randn(16, 10)
    optimizer.zero_grad()
    loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
    loss.backward()
    optimizer.step()
if gw.rank() == 0:
    print(f"the loss is {loss.item():.2f}")
