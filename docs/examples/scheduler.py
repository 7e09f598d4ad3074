"""A learning-rate schedule: it belongs to the optimiser that was wrapped, or to the wrapped one; both are the same.

    gradwire run -n 2 -- python3 scheduler.py"""
import torch
import gradwire.torch as gw

gw.init()
torch.manual_seed(gw.rank())
model = torch.nn.Sequential(torch.nn.Linear(10, 50), torch.nn.ReLU(), torch.nn.Linear(50, 1))
gw.broadcast_parameters(model.state_dict())
optimizer = gw.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.01 * gw.size()), model.named_parameters())
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=100)
for step in range(100):
    x = torch.randn(16, 10)
    optimizer.zero_grad()
    loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
    loss.backward()
    optimizer.step()
    schedule.step()  # after optimizer.step(): this step's gradients belong to its own rate
loss = gw.allreduce(loss.detach()).item()
if gw.rank() == 0:
    print(f"the loss is {loss:.2f}, the last rate was {schedule.get_last_lr()[0]:.4f}")
