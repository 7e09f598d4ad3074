"""Checkpoint and resume: a run that was stopped goes on where it was. Every rank has a file of its own, because what a codec
has not sent yet (its residual) is each rank's own.

    gradwire run -n 2 -- python3 checkpoint.py       twice: the second run goes on where the first one ended"""
import os
import sys
import torch
import gradwire.torch as gw

FOLDER, STEPS = sys.argv[1] if len(sys.argv) > 1 else ".", 50
gw.init()
model = torch.nn.Sequential(torch.nn.Linear(10, 50), torch.nn.ReLU(), torch.nn.Linear(50, 1))
optimizer = gw.DistributedOptimizer(torch.optim.Adam(model.parameters(), lr=0.01), model.named_parameters(),
                                    strategy="compress=topk:ratio=0.1")
path = os.path.join(FOLDER, f"checkpoint.{gw.rank()}")
# All ranks resume, or none: one that was stopped before it had saved a file would begin anew.
if gw.allreduce(torch.tensor(int(os.path.exists(path))), op=gw.Min):
    saved = torch.load(path)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
else:
    gw.broadcast_parameters(model.state_dict())
first = optimizer.step_number()
for step in range(first, first + STEPS):
    torch.manual_seed(1000 * step + gw.rank())  # the data of this step
    x = torch.randn(16, 10)
    optimizer.zero_grad()
    loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
    loss.backward()
    optimizer.step()
torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, path + ".new")
os.replace(path + ".new", path)  # the old file stays until the new one is complete
loss = gw.allreduce(loss.detach()).item()
if gw.rank() == 0:
    print(f"steps {first} to {first + STEPS - 1}: the loss is {loss:.2f}")
