"""Clipping: after backward() every gradient is the average, so the norm is the same on all ranks.

    gradwire run -n 2 -- python3 clipping.py"""
import torch
import gradwire.torch as gw

gw.init()
torch.manual_seed(gw.rank())
model = torch.nn.Sequential(torch.nn.Linear(10, 50), torch.nn.ReLU(), torch.nn.Linear(50, 1))
gw.broadcast_parameters(model.state_dict())
optimizer = gw.DistributedOptimizer(torch.optim.Adam(model.parameters(), lr=0.01), model.named_parameters(),
                                    strategy="schedule=dear")
for step in range(100):
    x = torch.randn(16, 10)
    optimizer.zero_grad()
    loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
    loss.backward()
    optimizer.synchronize()  # needed with dear, p3, bytescheduler and tictac, where backward() does not wait
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
norms = gw.allgather(norm.reshape(1))
loss = gw.allreduce(loss.detach()).item()
if gw.rank() == 0:
    print(f"the loss is {loss:.2f}, the norms of all ranks are {'equal' if len(set(norms.tolist())) == 1 else norms}")
