"""DTensor, tensor, sequence and pipeline parallelism over the group. One process has the whole model."""
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import (PipelineStage, Schedule1F1B, ScheduleGPipe, ScheduleInterleaved1F1B,
                                          ScheduleInterleavedZeroBubble, ScheduleLoopedBFS)
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import (ColwiseParallel, PrepareModuleInput, RowwiseParallel, SequenceParallel,
                                               loss_parallel, parallelize_module)

from tests.product.runner import Cases
from tests.product.runs import sgd
from tests.product.values import STEPS, batch, close

cases = Cases()
FEATURES = 8  # as many as four ranks can share
MICRO = 4  # parts of a batch in a pipeline: their mean loss is the whole's


def mesh():
    return init_device_mesh("cpu", (dist.get_world_size(),))


def given(*shape):
    torch.manual_seed(11)
    return torch.randn(*shape, dtype=torch.float64)


# ---- DTensor ----

PLACEMENTS = {"rows": Shard(0), "columns": Shard(1), "copies": Replicate()}


@cases.case(before=("rows", "columns"), after=("rows", "columns", "copies"), rows=(8, 5))
def redistribution(before, after, rows):
    """With five rows shards are uneven, or empty. What one rank holds is compared, and the whole."""
    x = given(rows, 8)
    one = distribute_tensor(x if dist.get_rank() == 0 else torch.zeros_like(x), mesh(), [PLACEMENTS[before]])
    other = one.redistribute(placements=[PLACEMENTS[after]])
    if after == "copies":
        close(other.to_local(), x)
    else:
        shards = x.chunk(dist.get_world_size(), 0 if after == "rows" else 1) + (x[:0],)
        close(other.to_local(), shards[min(dist.get_rank(), len(shards) - 1)])
    close(other.full_tensor(), x)


@cases.case(after=("rows", "copies"))
def sum_of_parts(after):
    """Each rank has a part of the sum."""
    x = given(dist.get_world_size(), 8, 3)
    one = DTensor.from_local(x[dist.get_rank()], mesh(), [Partial()])
    close(one.redistribute(placements=[PLACEMENTS[after]]).full_tensor(), x.sum(0))


@cases.case(a=("rows", "columns"), b=("rows", "columns"))
def product_of_shards(a, b):
    x, y = given(8, 8), given(8, 8).t().contiguous()
    shards = [distribute_tensor(t, mesh(), [PLACEMENTS[p]]).requires_grad_(True) for t, p in ((x, a), (y, b))]
    plain = [t.clone().requires_grad_(True) for t in (x, y)]
    result, wanted = (torch.tanh(one @ other) for one, other in (shards, plain))
    result.sum().backward()
    wanted.sum().backward()
    close(result.full_tensor(), wanted)
    close([s.grad.full_tensor() for s in shards], [p.grad for p in plain])


@cases.case(kind=("sum", "mean", "max", "norm", "softmax"))
def reduction_over_shards(kind):
    x = given(8, 6)
    compute = {"sum": lambda t: t.sum(0), "mean": lambda t: t.mean(), "max": lambda t: t.amax(0),
               "norm": torch.linalg.vector_norm, "softmax": lambda t: t.softmax(0)}[kind]
    close(compute(distribute_tensor(x, mesh(), [Shard(0)])).full_tensor(), compute(x))


@cases.case()
def tensor_on_a_mesh_of_two_dimensions():
    x = given(8, 8)
    two = init_device_mesh("cpu", (dist.get_world_size() // 2, 2))
    one = distribute_tensor(x, two, [Shard(0), Shard(1)])
    close(one.redistribute(placements=[Replicate(), Shard(0)]).full_tensor(), x)
    close((one @ one).full_tensor(), x @ x)


# ---- tensor and sequence parallelism ----

class Block(nn.Module):
    """Of rows (batch, positions, FEATURES)."""

    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(FEATURES), nn.Linear(FEATURES, 16), nn.Linear(16, FEATURES)
        self.head = nn.Linear(FEATURES, 12)

    def forward(self, x):
        return self.head(self.down(torch.relu(self.up(self.norm(x)))))


def block():
    torch.manual_seed(3)
    return Block().double()


def sequence(step):
    """Rows and labels that all ranks have."""
    generator = torch.Generator().manual_seed(200 + step)
    return (torch.randn(4, 8, FEATURES, generator=generator, dtype=torch.float64),
            torch.randint(12, (4, 8), generator=generator))


def loss_of(model, pair, **_):
    return F.cross_entropy(model(pair[0]).flatten(0, 1), pair[1].flatten())


def trained(model, loss=loss_of, rows=lambda pair: pair):
    """The weights after some steps, and the losses."""
    optimizer, losses = sgd(model.parameters()), []
    for step in range(STEPS):
        optimizer.zero_grad()
        one = loss(model, rows(sequence(step)))
        one.backward()
        optimizer.step()
        losses.append(one.item() if not isinstance(one, DTensor) else one.full_tensor().item())
    return {n: p.full_tensor().detach() if isinstance(p, DTensor) else p.detach()
            for n, p in model.named_parameters()}, losses


def columns_and_rows():
    return {"up": ColwiseParallel(), "down": RowwiseParallel()}


PLANS = {
    "columns and rows": columns_and_rows,
    "columns gathered": lambda: {"up": ColwiseParallel(output_layouts=Replicate()), "down": RowwiseParallel(
        input_layouts=Replicate())},
    "head in columns": lambda: {**columns_and_rows(), "head": ColwiseParallel(output_layouts=Replicate())},
    "rows alone": lambda: {"head": RowwiseParallel(input_layouts=Replicate())},
}


@cases.case(plan=PLANS)
def tensor_parallel(plan):
    """A rank that has a part of a layer leaves its part of the sum out where nothing travels."""
    model = parallelize_module(block(), mesh(), PLANS[plan]())
    close(trained(model), trained(block()))


@cases.case()
def sequence_parallel():
    """Normalisation on shards of the sequence, products on shards of the matrices."""
    plan = {"norm": SequenceParallel(), "up": ColwiseParallel(input_layouts=Shard(1)),
            "down": RowwiseParallel(output_layouts=Shard(1)),
            "head": ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate())}
    model = parallelize_module(block(), mesh(), {
        "": PrepareModuleInput(input_layouts=Replicate(), desired_input_layouts=Shard(1)), **plan})
    close(trained(model), trained(block()))


@cases.case()
def loss_of_a_sharded_head():
    def loss(model, pair):
        with loss_parallel():
            one = F.cross_entropy(model(pair[0]).flatten(0, 1), pair[1].flatten())
            one.backward()
        return one

    def step(model, optimizer, pair):
        optimizer.zero_grad()
        one = loss(model, pair)
        optimizer.step()
        return one.full_tensor().item() if isinstance(one, DTensor) else one.item()

    plan = {**columns_and_rows(), "head": ColwiseParallel(output_layouts=Shard(-1), use_local_output=False)}
    model = parallelize_module(block(), mesh(), plan)
    optimizer = sgd(model.parameters())
    losses = [step(model, optimizer, sequence(s)) for s in range(STEPS)]
    wanted = trained(block())
    close(losses, wanted[1])
    close({n: p.full_tensor() if isinstance(p, DTensor) else p for n, p in model.named_parameters()}, wanted[0])


@cases.case()
def tensor_parallel_within_sharded_replicas():
    """FSDP over one dimension of a mesh, tensor parallelism over the other."""
    two = init_device_mesh("cpu", (dist.get_world_size() // 2, 2), mesh_dim_names=("data", "model"))
    model = parallelize_module(block(), two["model"], columns_and_rows())
    fully_shard(model, mesh=two["data"])
    count, mine = two["data"].size(), two["data"].get_local_rank()

    def rows(pair):
        return tuple(t.chunk(count)[mine] for t in pair)

    close(trained(model, rows=rows)[0], trained(block())[0])


@cases.case()
def tensor_parallel_compiled():
    torch._dynamo.reset()
    model = parallelize_module(block(), mesh(), columns_and_rows())
    forward = torch.compile(model, backend="aot_eager")

    def loss(_, pair):
        return loss_of(forward, pair)

    close(trained(model, loss), trained(block()))


# ---- pipelines ----

def layers():
    torch.manual_seed(3)
    return [nn.Sequential(nn.Linear(6, 6), nn.Tanh()).double() for _ in range(2 * dist.get_world_size())]


def mse(output, target):
    return F.mse_loss(output, target)


def alone(count):
    """Gradients and loss of one process, of the first `count` layers."""
    model = nn.Sequential(*layers()[:count])
    x, _ = batch(0)
    x = x.clone()
    loss = mse(model(x), x.flip(0))
    loss.backward()
    return [[p.grad for p in layer.parameters()] for layer in model], loss.item()


def piped(schedule, stages, numbers):
    """The gradients of this rank's stages, and the loss where the pipeline ends."""
    x, _ = batch(0)
    losses = []
    arguments = (x,) if 0 in numbers else ()
    if dist.get_world_size() * len(numbers) - 1 in numbers:
        schedule.step(*arguments, target=x.flip(0), losses=losses)
    else:
        schedule.step(*arguments)
    return [[p.grad for p in stage.submod.parameters()] for stage in stages], losses


def stages_of(numbers, made, count):
    """Their shapes they tell each other."""
    return [PipelineStage(made[n], n, count, torch.device("cpu")) for n in numbers]


def checks(schedule, stages, numbers, count):
    wanted, loss = alone(count)
    gradients, losses = piped(schedule, stages, numbers)
    close(gradients, [wanted[n] for n in numbers])
    if losses:
        close(sum(one.item() for one in losses) / len(losses), loss)


@cases.case(kind=("GPipe", "1F1B"))
def pipeline(kind):
    count, numbers = dist.get_world_size(), [dist.get_rank()]
    stages = stages_of(numbers, layers(), count)
    kinds = {"GPipe": ScheduleGPipe, "1F1B": Schedule1F1B}
    checks(kinds[kind](stages[0], n_microbatches=MICRO, loss_fn=mse), stages, numbers, count)


@cases.case(kind=("interleaved 1F1B", "looped breadth first", "interleaved zero bubble"))
def pipeline_of_two_stages_a_rank(kind):
    count = 2 * dist.get_world_size()
    numbers = [dist.get_rank(), dist.get_rank() + dist.get_world_size()]
    stages = stages_of(numbers, layers(), count)
    kinds = {"interleaved 1F1B": ScheduleInterleaved1F1B, "looped breadth first": ScheduleLoopedBFS,
             "interleaved zero bubble": ScheduleInterleavedZeroBubble}
    checks(kinds[kind](stages, n_microbatches=MICRO, loss_fn=mse), stages, numbers, count)


@cases.case()
def pipeline_of_a_traced_model():
    """torch cuts the model itself, at the marks."""
    from torch.distributed.pipelining import SplitPoint, pipeline as cut

    count, rank = dist.get_world_size(), dist.get_rank()
    model = nn.Sequential(*layers()[:count])
    x, _ = batch(0)
    pipe = cut(model, (x.chunk(MICRO)[0],), split_spec={str(n): SplitPoint.BEGINNING for n in range(1, count)})
    stage = pipe.build_stage(rank, torch.device("cpu"))
    checks(ScheduleGPipe(stage, n_microbatches=MICRO, loss_fn=mse), [stage], [rank], count)
