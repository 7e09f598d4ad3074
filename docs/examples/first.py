"""The script of the tutorial: momentum, clipping and a scheduler.

    gradwire run -n 2 -- python3 first.py"""
import torch
import gradwire.torch as gw

gw.init()
torch.manual_seed(1)                                         # the same first weights on every rank
model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
optimizer = gw.DistributedOptimizer(optimizer, model.named_parameters())
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=200)

draw = torch.Generator().manual_seed(1)
examples, labels = torch.randn(4096, 64, generator=draw), torch.randint(0, 10, (4096,), generator=draw)
examples += 2 * torch.nn.functional.one_hot(labels, 64)      # something to learn
mine = slice(gw.rank(), None, gw.size())                     # this rank's part of the data
examples, labels = examples[mine], labels[mine]

for step in range(200):
    batch = torch.randint(0, len(labels), (32,))
    loss = torch.nn.functional.cross_entropy(model(examples[batch]), labels[batch])
    optimizer.zero_grad()
    loss.backward()                                          # gradients travel while this runs
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # they are averages already
    optimizer.step()
    scheduler.step()

right = (model(examples).argmax(1) == labels).float().mean()
right = gw.allreduce(right, name="accuracy")                 # the mean over all ranks
if gw.rank() == 0:
    print(f"{100 * right.item():.1f} % right")
