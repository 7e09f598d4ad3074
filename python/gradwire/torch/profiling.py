"""Compute time and parameter bytes of a training step, layer by layer (layers.py): the file that `gradwire predict`
reads. Parameters of a module that is never called belong to the layer around it."""
import statistics

import torch

from gradwire._library import GradwireError
from gradwire.torch import layers, world as worlds

NAME_BYTES = 47
HEADER = "layer,kind,parameter_bytes,forward_us,backward_us"


class Layer:
    def __init__(self, name, module):
        self.name, self.kind = name or type(module).__name__, type(module).__name__
        self.parameter_bytes, self.steps = 0, []  # of each step: ns of its forward and its backward passes

    def micros(self, backward):
        return f"{statistics.median(step[backward] for step in self.steps) / 1e3:.6g}"


class Recorder:
    """`called`: layers in the order of the forward pass."""

    def __init__(self, model):
        self.layers = {m: Layer(name, m) for name, m in model.named_modules() if layers.is_layer(m)}
        self.called, self.step = [], -1
        self.watch = layers.Watch(self.layers.get, self.report)

    def report(self, layer, backward, began, ended):
        if layer not in self.called:
            self.called.append(layer)
        while len(layer.steps) <= self.step:
            layer.steps.append([0, 0])
        layer.steps[self.step][backward] += ended - began

    def own(self, model):
        """Gives every parameter to a layer that was called."""
        called, seen = {layer.name: layer for layer in self.called}, set()
        for name, module in model.named_modules():
            while name and name not in called:
                name = name.rpartition(".")[0]
            owner = called.get(name or type(model).__name__, self.called[0])
            fresh = {p for p in module.parameters(recurse=False) if p.requires_grad} - seen
            owner.parameter_bytes += 4 * sum(p.numel() for p in fresh)
            seen |= fresh


def default_loss(output):
    tensor = layers.first_tensor(output)
    if tensor is None:
        raise GradwireError("profile: nothing in the model's output has a gradient; give the parameters requires_grad, "
                            "or a loss(output) function")
    return tensor.float().mean()


def check_free(model):
    """Refuses a model whose gradients a DistributedOptimizer sends."""
    sent = {s.parameter for o in worlds.world().living() for s in o._slots} if worlds.is_initialized() else ()
    for name, parameter in model.named_parameters():
        if parameter in sent:
            raise GradwireError(f'profile: a DistributedOptimizer sends the gradient of parameter "{name}": profile the '
                                "model before it is wrapped, or a copy, copy.deepcopy(model)")


def profile(model, batch, path="profile.csv", loss=default_loss, steps=5):
    """Runs a few training steps of the model on `batch` (a tensor, or a tuple or dict of its inputs) and writes the
    median times to `path`, which it returns. Gradients are cleared; parameters are not changed."""
    check_free(model)
    recorder = Recorder(model)
    try:
        for recorder.step in range(steps + 1):
            run_step(model, batch, loss)
    finally:
        recorder.watch.remove()
        model.zero_grad(set_to_none=True)
    if not recorder.called:
        raise GradwireError(f"profile: {type(model).__name__} calls none of its modules: it has no layers to report")
    recorder.own(model)
    with open(path, "w", encoding="utf-8") as out:
        out.write(f"# {type(model).__name__}, batch {samples(batch)}, {device_of(model)}, torch {torch.__version__}, "
                  f"{torch.get_num_threads()} threads; medians of {steps} steps, in execution order\n{HEADER}\n")
        for layer in recorder.called:
            layer.steps = layer.steps[1:] or [[0, 0]]  # the first one warms up
            out.write(",".join([short(layer.name), layer.kind, str(layer.parameter_bytes), layer.micros(False),
                                layer.micros(True)]) + "\n")
    return path


def run_step(model, batch, loss):
    model.zero_grad(set_to_none=True)
    loss(model(**batch) if isinstance(batch, dict) else model(*batch) if isinstance(batch, (list, tuple)) else
         model(batch)).backward()


def samples(batch):
    values = list(batch.values()) if isinstance(batch, dict) else batch if isinstance(batch, (list, tuple)) else [batch]
    return values[0].shape[0] if values[0].dim() else 1


def device_of(model):
    return next((p.device.type for p in model.parameters()), "cpu")


def short(name):
    return name if len(name) <= NAME_BYTES else ".." + name[2 - NAME_BYTES:]
