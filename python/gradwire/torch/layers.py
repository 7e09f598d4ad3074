"""When the layers of a model compute, forward and backward: for timelines (timeline.py) and profiles (profiling.py).

A layer is a module that has no others inside, or that owns parameters itself; what the latter's inner layers take is
theirs alone. A layer's backward pass begins when the gradient of its output is there and lasts until the next layer's
begins, so what lies between modules (an addition of two branches) counts with the layer after it."""
import time

import torch
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

clock = time.monotonic_ns  # CLOCK_MONOTONIC, as the library's recordings have it


def is_layer(module):
    return next(module.children(), None) is None or next(module.parameters(recurse=False), None) is not None


def first_tensor(value):
    """Of an output: the first that has a gradient."""
    if isinstance(value, torch.Tensor):
        return value if value.requires_grad else None
    values = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    return next((t for t in map(first_tensor, values) if t is not None), None)


def before_backward(tensor, changed, function):
    """function(gradient) when the gradient of a computed tensor is there, or of what it was changed to in place."""
    if hasattr(tensor.grad_fn, "register_prehook"):  # torch 2
        tensor.grad_fn.register_prehook(function)
        return
    if changed:
        tensor._backward_hooks = None  # these stay with the value that it was, and new ones would go to them
    tensor.register_hook(function)


class Watch:
    """Calls tell(layer, backward, began, ended), ns, for all that layers compute from now on, until remove(). Which
    layer a module is layer_of(module) says; None: it is none."""

    def __init__(self, layer_of, tell):
        self.layer_of, self.tell = layer_of, tell
        self.stack = []  # (module, layer) whose forward is under way, the outermost first
        self.since = 0   # when what is under way now began: the last of the stack, or else the layer going back
        self.back = None
        self.last = None  # the output of the layer that ended last, and its version
        self.hooks = []
        self.hook()

    def hook(self):
        """After all others: what these wait for is not the layer's."""
        self.remove()
        self.hooks = [register_module_forward_pre_hook(self.before), register_module_forward_hook(self.after)]

    def remove(self):
        for hook in self.hooks:
            hook.remove()

    def until(self, now):
        """What was under way is told, and something else begins."""
        if self.stack:
            self.tell(self.stack[-1][1], False, self.since, now)
        elif self.back is not None:  # whose backward pass computes something forward again
            self.tell(self.back, True, self.since, now)
        self.since = now

    def before(self, module, inputs):
        layer = self.layer_of(module)
        if layer is not None:
            self.forget(module)
            self.until(clock())
            self.stack.append((module, layer))

    def forget(self, module):
        """Forward passes that an exception ended are still there."""
        if any(module is one for one, _ in self.stack):
            while self.stack.pop()[0] is not module:
                pass

    def after(self, module, inputs, output):
        if not self.stack or self.stack[-1][0] is not module:
            return
        self.until(clock())
        layer = self.stack.pop()[1]
        self.follow(first_tensor(output), layer)

    def follow(self, tensor, layer):
        """Its gradient will be the beginning of the layer's backward pass."""
        again = tensor is not None and self.last is not None and tensor is self.last[0]
        if again and tensor._version == self.last[1]:
            return  # an inner layer's, which has come through
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
