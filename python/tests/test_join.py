"""Ranks run out of data at different times."""
import torch

import cases
import gradwire.torch as gw


def test_sums_of_those_who_are_left():
    for step in range(2 + 3 * gw.rank()):  # rank 0 has the least
        active = sum(step < 2 + 3 * r for r in range(gw.size()))
        assert gw.allreduce(torch.ones(3), op=gw.Sum).tolist() == [active] * 3
        assert gw.synchronize(gw.allreduce_async_(torch.ones(70000), op=gw.Average))[0].item() == \
            torch.tensor(active / gw.size())
        assert gw.grouped_allreduce([torch.ones(1), torch.ones(2, dtype=torch.int64)], op=gw.Max)[1].tolist() == [1, 1]
        assert gw.allreduce(-torch.ones(1), op=gw.Max).item() == -1
        assert gw.allreduce(torch.full((1,), 2, dtype=torch.int32), op=gw.Product).item() == 2 ** active
    assert gw.join() == gw.size() - 1


def test_all_at_once():
    assert gw.join() == gw.size() - 1


def test_steps_after_synchronize():
    model = torch.nn.Linear(3, 2)
    optimizer = gw.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters())
    for _ in range(2 + 2 * gw.rank()):
        optimizer.zero_grad()
        model(torch.ones(3)).sum().backward()
        optimizer.synchronize()
        optimizer.step()
    assert gw.join() == gw.size() - 1
    optimizer.detach()


def test_scale_factors():
    for step in range(1 + gw.rank()):
        active = sum(step < 1 + r for r in range(gw.size()))
        for kind in (torch.float32, torch.int32):
            total = gw.allreduce(torch.full((3,), 4, dtype=kind), op=gw.Sum, prescale_factor=0.5, postscale_factor=3.0)
            assert total.tolist() == [6 * active] * 3 and total.dtype == kind
    gw.join()


def test_what_join_cannot_answer():
    if gw.rank():
        cases.refused("rank 0 has called join()", gw.broadcast, torch.zeros(1), 1)
        cases.refused("rank 0 has called join()", gw.allgather, torch.zeros(1))
    assert gw.join() == gw.size() - 1


cases.run(globals(), join=True)
