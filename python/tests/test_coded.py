"""Single collectives through codecs: near the exact result, the same bits on all ranks, in the background, and after
their state was saved and loaded."""
import torch

import cases
import gradwire.torch as gw


def made(rank, step, shape=(37, 60)):
    return torch.randn(shape, generator=torch.Generator().manual_seed(100 * step + rank))


def parts(step):
    return [made(r, step) for r in range(gw.size())]


def same_everywhere(tensor):
    first = gw.broadcast(tensor, 0)
    assert torch.equal(first, tensor)


def near(result, wanted, loss):
    error = ((result - wanted).norm() / wanted.norm()).item()
    assert result.shape == wanted.shape and error <= loss, (result.shape, wanted.shape, error)


def test_allreduce():
    for compress, loss in (("none", 1e-6), ("fp16", 1e-3), ("int8", 0.02), ("powersgd:rank=4", 1.1)):
        with gw.CodedCollective("allreduce", "weight", made(0, 0), strategy=f"compress={compress}") as coded:
            for step in range(3):
                result = coded(made(gw.rank(), step))
                near(result, sum(parts(step)) / gw.size(), loss if step == 0 or loss < 1 else 3)
                same_everywhere(result)


def test_reducescatter_divides_rows():
    with gw.CodedCollective("reducescatter", "weight", made(0, 0), strategy="compress=int8", op=gw.Sum) as coded:
        for step in range(3):
            exact = gw.reducescatter(made(gw.rank(), step), op=gw.Sum)
            near(coded(made(gw.rank(), step)), exact, 0.02)


def test_allgather_of_different_numbers_of_rows():
    mine = made(gw.rank(), 0, (30 + gw.rank(), 60))
    with gw.CodedCollective("allgather", "weight", mine, strategy="compress=bf16") as coded:
        result = coded(mine)
        near(result, gw.allgather(mine), 0.01)
        assert gw.size() == 1 or not torch.equal(result, gw.allgather(mine))  # it is encoded
        same_everywhere(result)


def test_types_and_layouts():
    whole = torch.arange(12, dtype=torch.int32).view(3, 4).t()
    with gw.CodedCollective("allreduce", "table", whole, strategy="compress=none", op=gw.Sum) as coded:
        assert torch.equal(coded(whole), whole * gw.size())
    number = torch.tensor(float(gw.rank()))
    with gw.CodedCollective("allgather", "number", number) as coded:
        assert coded(number).tolist() == [float(r) for r in range(gw.size())]


def test_handles():
    one = gw.CodedCollective("reducescatter", "one", made(0, 0), strategy="compress=topk")
    two = gw.CodedCollective("allgather", "two", made(0, 0), strategy="compress=qsgd")
    again = gw.CodedCollective("allgather", "two", made(0, 0), strategy="compress=qsgd")
    for step in range(5):
        handles = [coded.start(made(gw.rank(), step)) for coded in ((one, two) if gw.rank() else (two, one))]
        cases.refused("gw_coded_wait first", one.start, made(gw.rank(), step))
        while not gw.poll(handles[0]):
            pass
        results = [gw.synchronize(handle) for handle in handles]
        gathered = results[1 if gw.rank() else 0]
        assert torch.equal(gathered, again(made(gw.rank(), step)))
    for coded in (one, two, again):
        coded.close()
        coded.close()


def test_saved_state():
    for collective in ("allreduce", "reducescatter", "allgather"):
        def opened():
            return gw.CodedCollective(collective, "weight", made(0, 0), strategy="compress=topk:ratio=0.02", seed=3)
        whole, broken = opened(), opened()
        for step in range(6):
            if step == 3:
                state = broken.state_dict()
                broken.close()
                broken = opened()
                broken.load_state_dict(state)
            assert torch.equal(whole(made(gw.rank(), step)), broken(made(gw.rank(), step)))
        stale = state if gw.rank() == 0 else broken.state_dict()
        if gw.size() > 1:
            cases.refused("before run 6, that of rank 0 before run 3", broken.load_state_dict, stale)
        whole.close()
        broken.close()


def test_what_it_says():
    with gw.CodedCollective("reducescatter", "weight", made(0, 0), strategy="arch=ring compress=fp16") as coded:
        uneven = " in uneven parts" if 37 % gw.size() else ""
        assert str(coded).startswith(f"reduce_scatter of weight, {37 * 60}{uneven} x f32, avg, arch=ring compress=fp16: ")
        if gw.size() > 1:
            assert 0 < coded.sent_bytes() < 37 * 60 * 4
    assert str(coded) == 'reducescatter of "weight", closed'


def test_wrong_arguments():
    x = made(0, 0)
    cases.refused("has to be one of allreduce, reducescatter, allgather", gw.CodedCollective, "alltoall", "x", x)
    cases.refused("sets sync", gw.CodedCollective, "allreduce", "x", x, "sync=ssp")
    cases.refused("nonesuch", gw.CodedCollective, "allreduce", "x", x, "compress=nonesuch")
    cases.refused("encodes f32", gw.CodedCollective, "allreduce", "x", x.double(), "compress=int8")
    cases.refused("cannot be divided between ranks", gw.CodedCollective, "reducescatter", "x", torch.tensor(1.0))
    with gw.CodedCollective("allreduce", "x", x, strategy="compress=int8") as coded:
        cases.refused("it was opened for torch.float32 of shape [37, 60]", coded, x.t())
        cases.refused("not one of the allreduce of x", coded.load_state_dict, {"state": torch.zeros(9, dtype=torch.uint8)})
    cases.refused("it has been closed", coded, x)


def test_one_that_is_left_open():
    test_one_that_is_left_open.coded = gw.CodedCollective("allgather", "x", made(0, 0), strategy="compress=int8")


if __name__ == "__main__":
    cases.run(globals())
