"""What a training step of a model computes and sends, layer by layer: the file that `gradwire predict` reads.

A layer is a module that has no others inside, or that owns parameters itself (its inner ones then count as part of it).
A layer's backward pass begins when the gradient of its output is there and lasts until the next layer's begins, so
what lies between modules (an addition of two branches) counts with the layer after it."""
import statistics
import time

import torch

from gradwire._library import GradwireError

NAME_BYTES = 47
HEADER = "layer,kind,parameter_bytes,forward_us,backward_us"


class Layer:
    def __init__(self, name, module):
        self.name, self.kind = name, type(module).__name__
        self.parameter_bytes = 4 * sum(p.numel() for p in module.parameters() if p.requires_grad)
        self.forward, self.backward = [], []  # seconds, one a step


def layers_of(model):
    """(name, module) of every layer, outermost where one owns parameters."""
    found, inside = [], set()
    for name, module in model.named_modules():
        owner = any(True for _ in module.parameters(recurse=False))
        if name in inside or not (owner or not any(module.children())):
            continue
        found.append((name or "model", module))
        inside.update(f"{name}.{inner}" if name else inner for inner, _ in module.named_modules() if inner)
    return found


def first_tensor(value):
    if isinstance(value, torch.Tensor):
        return value if value.requires_grad else None
    values = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    return next((t for t in map(first_tensor, values) if t is not None), None)


class Recorder:
    """Times of one step at a time. `order` holds layers in the order of the forward pass."""

    def __init__(self, model):
        self.order, self.began, self.spent, self.marks = [], {}, {}, []
        self.removals = []
        for name, module in layers_of(model):
            layer = Layer(name, module)
            self.removals.append(module.register_forward_pre_hook(self.before(layer)))
            self.removals.append(module.register_forward_hook(self.after(layer)))

    def before(self, layer):
        def hook(module, inputs):
            self.began[layer] = time.perf_counter()
        return hook

    def after(self, layer):
        def hook(module, inputs, output):
            self.spent[layer] = self.spent.get(layer, 0) + time.perf_counter() - self.began[layer]
            if layer not in self.order:
                self.order.append(layer)
            tensor = first_tensor(output)
            if tensor is not None:
                tensor.register_hook(lambda gradient: self.marks.append((time.perf_counter(), layer)))
        return hook

    def end_of_step(self, ended):
        """Turns the marks of a backward pass into times."""
        backward = {layer: 0.0 for layer in self.order}
        for (begin, layer), (end, _) in zip(self.marks, self.marks[1:] + [(ended, None)]):
            backward[layer] += end - begin
        for layer in self.order:
            layer.forward.append(self.spent.get(layer, 0.0))
            layer.backward.append(backward[layer])
        self.spent, self.marks = {}, []


def default_loss(output):
    tensor = first_tensor(output)
    if tensor is None:
        raise GradwireError("profile: nothing in the model's output has a gradient; give the parameters requires_grad, "
                            "or a loss(output) function")
    return tensor.float().mean()


def profile(model, batch, path="profile.csv", loss=default_loss, steps=5):
    """Runs a few training steps of the model on `batch` (a tensor, or a tuple or dict of its inputs) and writes the
    median times to `path`, which it returns. Gradients are cleared; parameters are not changed."""
    recorder = Recorder(model)
    try:
        for step in range(steps + 1):  # the first one warms up
            run_step(model, batch, loss, recorder, step > 0)
    finally:
        for removal in recorder.removals:
            removal.remove()
        model.zero_grad(set_to_none=True)
    with open(path, "w", encoding="utf-8") as out:
        out.write(f"# {type(model).__name__}, batch {samples(batch)}, {device_of(model)}, torch {torch.__version__}, "
                  f"{torch.get_num_threads()} threads; medians of {steps} steps, in execution order\n{HEADER}\n")
        for layer in recorder.order:
            out.write(",".join([short(layer.name), layer.kind, str(layer.parameter_bytes), micros(layer.forward),
                                micros(layer.backward)]) + "\n")
    return path


def run_step(model, batch, loss, recorder, keep):
    model.zero_grad(set_to_none=True)
    output = model(**batch) if isinstance(batch, dict) else model(*batch) if isinstance(batch, (list, tuple)) else \
        model(batch)
    value = loss(output)
    recorder.marks = []
    value.backward()
    recorder.end_of_step(time.perf_counter())
    if not keep:
        for layer in recorder.order:
            layer.forward, layer.backward = [], []


def samples(batch):
    values = list(batch.values()) if isinstance(batch, dict) else batch if isinstance(batch, (list, tuple)) else [batch]
    return values[0].shape[0] if values[0].dim() else 1


def device_of(model):
    return next((p.device.type for p in model.parameters()), "cpu")


def short(name):
    return name if len(name) <= NAME_BYTES else ".." + name[2 - NAME_BYTES:]


def micros(times):
    return f"{statistics.median(times) * 1e6:.6g}"
