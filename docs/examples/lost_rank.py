"""Training goes on when a rank is lost: the others come together again, and the launcher starts another one.

    gradwire run -n 4 --restarts 10 -- python3 lost_rank.py"""
import torch
import gradwire.torch as gw

newest = gw.init()
model = torch.nn.Sequential(torch.nn.Linear(10, 50), torch.nn.ReLU(), torch.nn.Linear(50, 1))
optimizer = gw.DistributedOptimizer(torch.optim.Adam(model.parameters()), model.named_parameters())
while True:
    try:
        gw.broadcast_parameters(model.state_dict(), newest)  # needed by ranks that were started again
        gw.broadcast_optimizer_state(optimizer, newest)
        while optimizer.step_number() < 100:
            x = torch.randn(16, 10)
            optimizer.zero_grad()
            (model(x) - x.sum(1, keepdim=True)).square().mean().backward()
            optimizer.step()
        gw.barrier()  # nobody leaves while another may need it
        break
    except gw.GradwireError as error:
        if not error.lost:
            raise
        newest = gw.regroup()
