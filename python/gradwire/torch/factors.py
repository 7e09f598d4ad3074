"""Sufficient factors of Linear layers, for arch=sfb (Poseidon: Zhang et al., USENIX ATC 2017). The gradient of such a
layer's weight is the product of its output's gradient and its input. Where these are fewer bytes they travel instead.

A hook after the forward of every torch.nn.Linear gives its output a node of the graph that keeps the two in backward
and returns no gradient for the weight: torch does not multiply them. All other uses of the weight bring their gradients
as always. So when torch says that a weight has all its gradients, they are what was kept, of one call or of several,
and what parameter.grad holds. If it holds nothing, the factors travel; else they are multiplied, and the whole gradient
travels. Where it cannot be known that nobody will look at the gradient, the node returns it like any other."""
import warnings
import weakref

import torch
from torch.autograd import forward_ad
from torch.nn.modules import module as torch_modules

from gradwire.torch.compiling import is_tracing
from gradwire.torch.reducer import technique_of

AVAILABLE = hasattr(torch.Tensor, "register_post_accumulate_grad_hook")  # torch 2.1
FORWARD = torch.nn.Linear.forward
OTHER_USES = -1  # instead of a number of rows: the gradient is not a product of factors alone


class Layer:
    """The weight of Linear layers (a slot), and the factors of its gradient in the present step."""

    def __init__(self, optimizer, slot):
        self.optimizer, self.slot = weakref.ref(optimizer), slot
        self.kept = []         # (gradient of the output, input) of each call, both with a row for each example
        self.reported = False  # that the gradient has travelled whole
        self.silent = False    # torch has not yet said that the gradient of a call is complete
        with torch.enable_grad():
            self.node = slot.parameter.expand_as(slot.parameter).grad_fn.next_functions[0][0]
        self.hook = self.node.register_hook(self.after_node)

    def after_node(self, *_):
        """Some versions of torch do not report a gradient that is None as complete."""
        if self.silent:
            self.slot.complete()

    def wanted(self):
        optimizer = self.optimizer()
        return optimizer is not None and optimizer._passes == 1 and self.slot.room != 0

    def keep(self, left, right):
        """Called in backward. False: the gradient itself is needed, for hooks of the parameter or as a result of
        torch.autograd.grad()."""
        if is_tracing() or not self.wanted() or self.slot.parameter._backward_hooks:
            return False
        try:
            if not torch._C._will_engine_execute_node(self.node):
                return False
        except RuntimeError:  # torch.autograd.grad() has asked for it
            return False
        self.kept.append((left.detach(), right.detach()))
        self.silent = True
        return True

    def fits(self):
        return 0 < self.slot.room >= self.rows()

    def rows(self):
        return sum(len(left) for left, _ in self.kept)

    def take(self):
        """The factors of this step, in host memory, which it then forgets."""
        kept, self.kept = self.kept, []
        return tuple(torch.cat(part).contiguous().cpu() if len(part) > 1 else part[0].contiguous().cpu()
                     for part in zip(*kept))

    def multiply(self, gradient):
        """The whole gradient, to which parameter.grad, if there was any, has contributed."""
        kept, self.kept = self.kept, []
        for left, right in kept:
            gradient = left.t() @ right if gradient is None else gradient.detach().addmm_(left.t(), right)
        return gradient

    def remove(self):
        self.hook.remove()


class Linear(torch.autograd.Function):
    """The output of a Linear layer that has been computed already."""

    @staticmethod
    def forward(ctx, x, weight, bias, computed):
        ctx.layer, output = computed
        ctx.save_for_backward(x, weight)
        return output

    @staticmethod
    def backward(ctx, gradient):
        x, weight = ctx.saved_tensors
        left, right = as_rows(gradient), as_rows(x)
        of_x, of_weight, of_bias, _ = ctx.needs_input_grad
        kept = of_weight and ctx.layer.keep(left, right)
        return (gradient @ weight if of_x else None, left.t() @ right if of_weight and not kept else None,
                left.sum(0) if of_bias else None, None)


def as_rows(tensor):
    return tensor.flatten(0, -2) if tensor.dim() > 1 else tensor[None]


def is_plain(module, inputs, output):
    """Whether the output is linear(input, weight, bias), of f32, in a graph that torch.func has no part in."""
    if type(module).forward is not FORWARD or "forward" in module.__dict__ or len(inputs) != 1:
        return False
    weight = module._parameters.get("weight")
    return (type(weight) is torch.nn.Parameter and weight.requires_grad and weight.is_contiguous()
            and type(inputs[0]) is torch.Tensor and output.requires_grad
            and torch.float32 == weight.dtype == inputs[0].dtype == output.dtype
            and not torch._C._are_functorch_transforms_active() and forward_ad._current_level < 0)


def are_asked_for(strategy, job):
    if technique_of("arch", strategy, job) != "sfb":
        return False
    if not AVAILABLE:
        warnings.warn(f"arch=sfb: torch {torch.__version__} cannot give the factors of gradients, which travel whole; "
                      "from 2.1 on it can")
    return AVAILABLE


def watch(optimizer):
    """Hooks Linear layers. The result has remove()."""
    me = weakref.ref(optimizer)

    def after(module, inputs, output):
        if is_tracing() or not isinstance(module, torch.nn.Linear):
            return None
        one = me()
        layer = one._layer(module.weight) if one is not None and is_plain(module, inputs, output) else None
        if layer is None or not layer.wanted():
            return None
        return Linear.apply(inputs[0], module.weight, module.bias, (layer, output.data))

    handle = torch_modules.register_module_forward_hook(after)
    torch_modules._global_forward_hooks.move_to_end(handle.id, last=False)  # others may change the output
    return handle


def largest_rows(job, slots):
    """How many rows the factors of each slot have in this step, on the rank that has most. 0: it has none, or some rank
    has a gradient that is not a product of them. Collective."""
    mine = [OTHER_USES if s.parameter.grad is not None else 0 if s.layer is None else s.layer.rows() for s in slots]
    ranks = job.gather(*mine) if mine else []
    found = [ranks[i::len(slots)] for i in range(len(slots))]
    whole = [s.name for s, rows in zip(slots, found) if s.layer is not None and OTHER_USES in rows]
    if whole:
        warnings.warn(f'arch=sfb: {len(whole)} weights of Linear layers have gradients that are no product of factors, '
                      f'and travel whole: {", ".join(whole[:3])}{"..." if len(whole) > 3 else ""}')
    return [0 if OTHER_USES in rows else max(rows) for rows in found]


def report_whole(slot):
    """Says once for each weight that its gradient travels whole, as those of all ranks then do in that step."""
    layer = slot.layer
    if layer is None or layer.reported:
        return
    layer.reported = True
    reason = "backward() had to compute it, as it does under autocast and torch.compile and for hooks of the parameter"
    if layer.kept and not layer.fits():
        reason = f"its factors have {layer.rows()} rows, and there is room for the {slot.room} of the first step"
    elif layer.kept:
        reason = "the weight is also used outside of Linear layers, or parameter.grad was not None before backward()"
    warnings.warn(f'arch=sfb: the gradient of "{slot.name}" travels whole in this step: {reason}')
