"""A script for Horovod's elastic training, in which a rank dies: elastic_script.py RANKS-AT-THE-END. The weights have to
be those of one process that goes back to the last commit too, and goes on with the batches of the ranks there are."""
import os
import signal
import sys

import torch

import gradwire.torch as hvd

STEPS, COMMIT, DIES, BEGIN, END = 12, 4, 6, 3, int(sys.argv[1])


def network():
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.Tanh(), torch.nn.Linear(6, 2)).double()
    return model, torch.optim.Adam(model.parameters(), lr=0.01)


def loss_of(model, step, rank):
    generator = torch.Generator().manual_seed(1000 * step + rank)
    return model(torch.randn(5, 4, generator=generator, dtype=torch.float64)).square().mean()


def one_process():
    model, optimizer = network()
    for step in range(STEPS):
        ranks = BEGIN if step < COMMIT else END
        optimizer.zero_grad()
        (sum(loss_of(model, step, rank) for rank in range(ranks)) / ranks).backward()
        optimizer.step()
    return model


@hvd.elastic.run
def train(state):
    sets.append(hvd.add_process_set([0]))  # those from before a loss have ended
    assert [one.size() for one in sets] == [None] * (len(sets) - 1) + [1]
    while state.batch < STEPS:
        if state.batch == DIES and os.environ["RANK"] == "1" and "GRADWIRE_GENERATION" not in os.environ:
            os.kill(os.getpid(), signal.SIGKILL)
        optimizer.zero_grad()
        loss_of(model, state.batch, hvd.rank()).backward()
        optimizer.step()
        state.batch += 1
        if state.batch == COMMIT:
            state.commit()
    hvd.barrier()  # nobody leaves while another may need it


hvd.init()
resets, sets = [], []
model, optimizer = network()
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
state = hvd.elastic.TorchState(model=model, optimizer=optimizer, batch=0)
state.register_reset_callbacks([lambda: resets.append(hvd.size())])
train(state)
assert resets == ([] if "GRADWIRE_GENERATION" in os.environ else [END]), resets
for mine, expected in zip(model.parameters(), one_process().parameters()):
    torch.testing.assert_close(mine, expected, rtol=1e-9, atol=1e-9)
print("as one process", flush=True)
