"""Forward and backward times of a model's layers: for timelines (timeline.py) and profiles (profiling.py).

A layer is a module without submodules, or one that owns parameters itself; the time of its inner layers is not counted
for it. A layer's backward pass begins when the gradient of its output is complete and lasts until the next layer's
begins, so computation between modules (an addition of two branches) counts with the layer after it. What torch.compile
has compiled calls no hooks, and has no layers."""
import time

import torch
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from gradwire.torch import compiling

clock = time.monotonic_ns  # CLOCK_MONOTONIC, as the library's recordings have it


def is_layer(module):
    return next(module.children(), None) is None or next(module.parameters(recurse=False), None) is not None


def first_tensor(value):
    """The first tensor of an output that requires a gradient."""
    if isinstance(value, torch.Tensor):
        return value if value.requires_grad else None
    values = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    return next((t for t in map(first_tensor, values) if t is not None), None)


def before_backward(tensor, changed, function):
    """Calls function(gradient) when the gradient of a computed tensor, or of its value after in-place changes, is
    complete."""
    if hasattr(tensor.grad_fn, "register_prehook"):  # torch 2
        tensor.grad_fn.register_prehook(function)
        return
    if changed:
        tensor._backward_hooks = None  # they belong to the value before the change, and new ones would join them
    tensor.register_hook(function)


class Watch:
    """Calls report(layer, backward, began, ended), in ns, for all computation of layers from now on, until remove().
    layer_of(module) is the layer of a module, or None."""

    def __init__(self, layer_of, report):
        self.layer_of, self.report = layer_of, report
        self.stack = []  # (module, layer) in forward, the outermost first
        self.since = 0   # when the present layer began: the last of the stack, or else the one in backward
        self.back = None
        self.last = None  # the output of the layer that ended last, and its version
        self.hooks = []
        self.hook()

    def hook(self):
        """Adds the hooks after all others, whose waiting does not count for the layer."""
        self.remove()
        self.hooks = [register_module_forward_pre_hook(self.before), register_module_forward_hook(self.after)]

    def remove(self):
        for hook in self.hooks:
            hook.remove()

    def until(self, now):
        """Reports the present layer up to now; another one begins."""
        if self.stack:
            self.report(self.stack[-1][1], False, self.since, now)
        elif self.back is not None:  # its backward pass recomputes a forward pass
            self.report(self.back, True, self.since, now)
        self.since = now

    def before(self, module, inputs):
        if compiling.is_tracing():
            return
        layer = self.layer_of(module)
        if layer is not None:
            self.forget(module)
            self.until(clock())
            self.stack.append((module, layer))

    def forget(self, module):
        """Removes forward passes that an exception ended."""
        if any(module is one for one, _ in self.stack):
            while self.stack.pop()[0] is not module:
                pass

    def after(self, module, inputs, output):
        if compiling.is_tracing() or not self.stack or self.stack[-1][0] is not module:
            return
        self.until(clock())
        layer = self.stack.pop()[1]
        self.follow(first_tensor(output), layer)

    def follow(self, tensor, layer):
        """The gradient of this tensor marks the beginning of the layer's backward pass."""
        again = tensor is not None and self.last is not None and tensor is self.last[0]
        if again and tensor._version == self.last[1]:
            return  # the unchanged output of an inner layer
        self.last = None if tensor is None else (tensor, tensor._version)
        if tensor is not None:
            before_backward(tensor, again, lambda gradient: self.goes_back(layer))

    def goes_back(self, layer):
        now = clock()
        if self.back is None:
            torch.autograd.Variable._execution_engine.queue_callback(self.end_of_backward)
            self.since, self.last = now, None
        self.until(now)
        self.back = layer

    def end_of_backward(self):
        self.until(clock())
        self.back = None
