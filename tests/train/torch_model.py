"""A model of gradwire's text format in PyTorch, for comparisons of results and of speed."""
import math

import torch
import torch.nn.functional as F


def options(words, names):
    """The words after the operands as a dictionary: `name N` for names with a number, True for flags."""
    found, at = {}, 0
    while at < len(words):
        if names[words[at]]:
            found[words[at]] = int(words[at + 1])
            at += 1
        else:
            found[words[at]] = True
        at += 1
    return found


def take(words, name):
    if name not in words:
        return None
    at = words.index(name)
    word = words[at + 1]
    del words[at : at + 2]
    return word


WINDOW = {"stride": 1, "pad": 1, "nobias": 0, "relu": 0}


def attention(x, heads):
    batch, positions, width = x.shape[0], x.shape[1], x.shape[2] // 3
    q, k, v = (part.view(batch, positions, heads, width // heads).transpose(1, 2) for part in x.split(width, dim=2))
    scores = q @ k.transpose(2, 3) / math.sqrt(width // heads)
    future = torch.ones(positions, positions, dtype=torch.bool).triu(1)
    p = scores.masked_fill(future, float("-inf")).softmax(dim=3)
    return (p @ v).transpose(1, 2).reshape(batch, positions, width)


def flatten(x):
    """Channels last, as gradwire has them."""
    return (x.permute(0, 2, 3, 1) if x.dim() == 4 else x).reshape(x.shape[0], -1)


class Model:
    """parameters, buffers: lists of tensors in forward order, used in that order."""

    def __init__(self, text, parameters, buffers):
        self.lines = [line.split("#")[0].split() for line in text.splitlines()]
        self.lines = [words for words in self.lines if words][1:]
        self.parameters, self.buffers = parameters, buffers

    def forward(self, x):
        weights, buffers, labels = iter(self.parameters), iter(self.buffers), {}
        for line in self.lines:
            words = list(line)
            source, label = take(words, "from"), take(words, "as")
            x = self.layer(words[0], words[1:], labels[source] if source else x, weights, buffers, labels)
            if label:
                labels[label] = x
        return x

    def layer(self, kind, words, x, weights, buffers, labels):
        if kind == "conv":
            o = options(words[2:], WINDOW)
            weight, bias = next(weights), None if "nobias" in o else next(weights)
            x = F.conv2d(x, weight, bias, o.get("stride", 1), o.get("pad", (int(words[1]) - 1) // 2))
        elif kind == "dense":
            weight, bias = next(weights), None if "nobias" in words else next(weights)
            x = F.linear(x.flatten(1) if x.dim() == 4 else x, weight, bias)
        elif kind == "batchnorm":
            scale, shift, mean, variance = next(weights), next(weights), next(buffers), next(buffers)
            x = F.batch_norm(x, mean, variance, scale, shift, True, 0.1, 1e-5)
        elif kind == "layernorm":
            x = F.layer_norm(x, x.shape[-1:], next(weights), next(weights), 1e-5)
        elif kind in ("maxpool", "avgpool"):
            o = options(words[1:], WINDOW)
            size, stride, pad = int(words[0]), o.get("stride", int(words[0])), o.get("pad", 0)
            x = F.max_pool2d(x, size, stride, pad) if kind == "maxpool" else F.avg_pool2d(
                x, size, stride, pad, count_include_pad=False)
        elif kind == "globalpool":
            x = x.mean((2, 3), keepdim=True)
        elif kind == "add":
            x = x + labels[words[0]]
        elif kind == "embedding":
            x = F.embedding(x, next(weights))
        elif kind == "positions":
            x = x + next(weights)
        elif kind == "attention":
            x = attention(x, int(words[0]))
        else:
            x = {"flatten": flatten, "gelu": F.gelu, "relu": F.relu, "softmax": lambda t: t.softmax(-1)}[kind](x)
        return F.relu(x) if "relu" in words else x


def loss(output, labels):
    if output.dim() == 4:
        output = output.permute(0, 2, 3, 1)
    return F.cross_entropy(output.reshape(-1, output.shape[-1]), labels.reshape(-1))
