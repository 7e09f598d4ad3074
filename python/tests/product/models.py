"""Models that are unusual in one way each. All take rows of WIDE numbers and return OUT."""
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from tests.product.values import OUT, WIDE, network


def seeded(make):
    """The maker of a float64 model with the same weights each time."""
    def made():
        torch.manual_seed(3)
        return make().double()
    return made


def float32():
    return network(torch.float32)


class Own(nn.Module):
    """The network in a class of our own: dynamo does not compile forward() of torch's containers."""

    def __init__(self, dtype):
        super().__init__()
        self.layers = network(dtype)

    def forward(self, x):
        return self.layers(x)


def compiled(backend, dtype=torch.float32, **options):
    """The maker of a compiled module, whose parameters keep their names."""
    def make():
        torch._dynamo.reset()
        model = Own(dtype)
        model.compile(backend=backend, **options)
        return model
    return make


def partly_frozen():
    model = network()
    model[0].requires_grad_(False)
    model[5].bias.requires_grad_(False)
    return model


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(WIDE, WIDE)
        self.second = nn.Linear(WIDE, WIDE)
        self.second.weight = self.first.weight
        self.last = nn.Linear(WIDE, OUT)

    def forward(self, x):
        return self.last(torch.tanh(self.second(torch.tanh(self.first(x)))))


class Twice(nn.Module):
    """Calls a module twice."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(WIDE, WIDE), nn.Linear(WIDE, OUT)

    def forward(self, x):
        return self.last(self.first(torch.tanh(self.first(x))))


class Branches(nn.Module):
    """`some` is used where the caller says so, `never` is not used at all."""

    def __init__(self):
        super().__init__()
        self.always, self.some, self.never = nn.Linear(WIDE, OUT), nn.Linear(OUT, OUT), nn.Linear(OUT, OUT)

    def forward(self, x, with_some):
        y = self.always(x)
        return self.some(y) if with_some else y


class Recomputed(nn.Module):
    def __init__(self, reentrant):
        super().__init__()
        self.reentrant, self.inner, self.last = reentrant, network()[:5], nn.Linear(8, OUT)

    def forward(self, x):
        return self.last(checkpoint(self.inner, x.requires_grad_(True), use_reentrant=self.reentrant))


class Table(nn.Module):
    """An embedding."""

    def __init__(self, sparse):
        super().__init__()
        self.table, self.last = nn.Embedding(20, 5, sparse=sparse), nn.Linear(5, OUT)

    def forward(self, x):
        return self.last(self.table((x.abs() * 10).long() % 20).mean(1))


class Convolutions(nn.Module):
    """Rows are pictures of 1 x 2 with 3 channels; their batch is normalised."""

    def __init__(self):
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 4, (1, 2), padding=(0, 1)), nn.BatchNorm2d(4)
        self.last = nn.Linear(4 * 3, OUT)

    def forward(self, x):
        return self.last(torch.relu(self.norm(self.first(x.view(-1, 3, 1, 2)))).flatten(1))


class Mixed(nn.Module):
    """Parameters of four types."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(WIDE, 8, dtype=torch.float64), nn.Linear(8, 8, dtype=torch.bfloat16)
        self.c, self.d = nn.Linear(8, OUT), nn.Parameter(torch.ones(OUT, dtype=torch.float16))

    def forward(self, x):
        return self.c(self.b(self.a(x).to(torch.bfloat16)).float()) * self.d.float()


class Waves(nn.Module):
    """A complex matrix."""

    def __init__(self, dtype):
        super().__init__()
        self.first = nn.Parameter(torch.randn(WIDE, 5, dtype=dtype))
        self.last = nn.Linear(5, OUT, dtype=dtype.to_real())

    def forward(self, x):
        return self.last((x.to(self.first.dtype) @ self.first).abs())


class Odd(nn.Module):
    """An empty parameter, one without dimensions, one whose memory has another order, one of a single element."""

    def __init__(self):
        super().__init__()
        self.empty, self.scale = nn.Parameter(torch.zeros(0, 3)), nn.Parameter(torch.tensor(2.0))
        self.turned = nn.Parameter(torch.randn(5, WIDE).t())
        self.last, self.one = nn.Linear(5, OUT), nn.Parameter(torch.ones(1, 1, 1))

    def forward(self, x):
        return self.last(torch.tanh(x @ self.turned)) * self.scale + self.one.sum() + self.empty.sum()


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.cells, self.last = nn.LSTM(2, 5, num_layers=2, batch_first=True), nn.Linear(5, OUT)

    def forward(self, x):
        return self.last(self.cells(x.view(-1, 3, 2))[0][:, -1])


class Attends(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True)
        self.first, self.last = nn.Linear(2, 4), nn.Linear(4, OUT)

    def forward(self, x):
        return self.last(self.block(self.first(x.view(-1, 3, 2))).mean(1))
