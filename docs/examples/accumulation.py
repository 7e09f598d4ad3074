"""Accumulation: gradients of four backward passes are added up on each rank, and travel once.

    gradwire run -n 2 -- python3 accumulation.py"""
import torch
import gradwire.torch as gw

PASSES = 4
gw.init()
torch.manual_seed(gw.rank())
model = torch.nn.Sequential(torch.nn.Linear(10, 50), torch.nn.ReLU(), torch.nn.Linear(50, 1))
gw.broadcast_parameters(model.state_dict())
optimizer = gw.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.02), model.named_parameters(),
                                    backward_passes_per_step=PASSES)
for step in range(100):
    optimizer.zero_grad()
    for _ in range(PASSES):
        x = torch.randn(4, 10)
        loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
        (loss / PASSES).backward()
    optimizer.step()
loss = gw.allreduce(loss.detach()).item()
if gw.rank() == 0:
    print(f"the loss is {loss:.2f} after {optimizer.step_number()} steps")
