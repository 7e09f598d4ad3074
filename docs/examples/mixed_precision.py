"""Mixed precision: the forward pass computes in bf16; parameters and gradients are f32, and travel as f16. A GradScaler, for
f16 on a GPU, is used as always: scaler.unscale_(optimizer) after backward() sees the averages.

    gradwire run -n 2 -- python3 mixed_precision.py"""
import torch
import gradwire.torch as gw

gw.init()
torch.manual_seed(gw.rank())
model = torch.nn.Sequential(torch.nn.Linear(10, 50), torch.nn.ReLU(), torch.nn.Linear(50, 1))
gw.broadcast_parameters(model.state_dict())
optimizer = gw.DistributedOptimizer(torch.optim.Adam(model.parameters(), lr=0.01), model.named_parameters(),
                                    strategy="compress=fp16")
for step in range(100):
    x = torch.randn(16, 10)
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = model(x)
    loss = (output.float() - x.sum(1, keepdim=True)).square().mean()
    loss.backward()
    optimizer.step()
loss = gw.allreduce(loss.detach()).item()
if gw.rank() == 0:
    print(f"the loss is {loss:.2f}, computed in {output.dtype}")
