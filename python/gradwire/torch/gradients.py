"""The memory of an optimiser's gradients: one buffer for each type, in the order of the forward pass, so that fused
tensors are contiguous and need no copy."""
import ctypes
import weakref

import torch
import torch.utils._pytree

from gradwire._library import GradwireError, lib
from gradwire.torch import staging
from gradwire.torch.errors import ArgumentError
from gradwire.torch.reducer import memory
from gradwire.torch.tensors import DTYPES


class Slot:
    """One parameter. The fields after `group` change from step to step."""

    def __init__(self, name, parameter, group):
        self.name, self.parameter, self.group = name, parameter, group
        self.index = -1        # of the reducer's tensor
        self.place = -1        # index in the flags
        self.view = None       # its part of the buffer, of the parameter's shape and strides
        self.weights = None    # where the reducer writes the parameter, if it does
        self.kept = None       # hooks
        self.complete = None   # the function that they call
        self.staged = False    # the gradient is computed outside of `view`
        self.outside = None    # staged: the device's tensor, to which the mean is copied back
        self.passes = 0        # backward passes since the last step
        self.ready = False     # handed to the reducer
        self.used = False      # had a gradient in this step, on this rank
        self.pending = False   # the step is over, and its update has not been applied yet
        self.updated = 0       # number of the last step that updated the parameter, plus 1
        self.missing = None    # what parameter.grad is until there is an average
        self.batch = 0         # rows of factors that the reducer was committed with
        self.room = None       # those that it takes; 0: it wants no factors; None: it is not committed yet
        self.layer = None      # its factors (factors.Layer), once a Linear layer has used it

    def received(self):
        """What the average is in, for parameter.grad."""
        return self.outside if self.staged else self.view

    def forget_factors(self):
        if self.layer is not None:
            self.layer.kept = []

    def hide(self, reason):
        """Lets parameter.grad raise an error with the reason when it is used."""
        if self.missing is None or self.missing.reason != reason:
            self.missing = OnItsWay(self, reason)
        self.parameter.grad = self.missing


class OnItsWay(torch.Tensor):
    """Stands for the gradient of a slot that the reducer has. Every use raises an error; only zeroing it is fine once the
    step is over."""

    @staticmethod
    def __new__(cls, slot, reason):
        like = slot.parameter
        self = torch.Tensor._make_wrapper_subclass(cls, like.size(), strides=like.stride(), dtype=like.dtype,
                                                   device=like.device)
        self.slot, self.reason = weakref.ref(slot), reason
        return self

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, function, types, arguments=(), options=None):
        self = next(a for a in torch.utils._pytree.tree_flatten((arguments, options))[0] if isinstance(a, cls))
        slot = self.slot()
        if function is torch.ops.aten.zero_.default and slot.pending:
            slot.parameter.grad = None
            return self
        raise GradwireError(f'the gradient of parameter "{slot.name}" cannot be used here: {self.reason}')

    def __repr__(self, **_):
        return f"<gradient on its way: {self.reason}>"


def lies_dense(tensor):
    """Whether it has no holes or overlaps, in any order of dimensions."""
    expected = 1
    for stride, size in sorted((s, d) for s, d in zip(tensor.stride(), tensor.shape) if d != 1):
        if stride != expected:
            return False
        expected *= size
    return True


def check_parameter(slot):
    if not slot.parameter.is_complex() and not (slot.parameter.dtype in DTYPES and slot.parameter.is_floating_point()):
        raise GradwireError(f'parameter "{slot.name}" is of type {slot.parameter.dtype}, whose gradients cannot be '
                            "combined", "UNSUPPORTED")
    if not lies_dense(slot.parameter):
        raise GradwireError(f'parameter "{slot.name}" does not lie in one piece (strides {slot.parameter.stride()}); '
                            "make it contiguous first", "UNSUPPORTED")


def check_places(slots):
    """Refuses parameters whose memory has moved, where the reducer writes them itself."""
    for slot in slots:
        if slot.parameter.data_ptr() != slot.weights.data_ptr():
            raise GradwireError(f'parameter "{slot.name}" lies elsewhere than in the first step (its .data was '
                                "replaced), and the synchronization works on weights: make a new DistributedOptimizer")


def named_slots(groups, named_parameters):
    """A slot for every parameter of the optimiser, with the given names."""
    names = {}
    for name, parameter in named_parameters or ():
        if name in names.values():
            raise ArgumentError(f'named_parameters has two parameters called "{name}"')
        names[parameter] = name
    slots = []
    for g, group in enumerate(groups):
        for i, parameter in enumerate(group["params"]):
            if named_parameters is not None and parameter not in names:
                raise ArgumentError(f"parameter {i} of the optimiser's group {g}, of shape {list(parameter.shape)}, is "
                                    "not among named_parameters: give model.named_parameters() of the whole model")
            slots.append(Slot(names.get(parameter, f"group{g}.{i}"), parameter, g))
            check_parameter(slots[-1])
    return slots


class Buffers:
    """The memory of all slots, from gw_alloc (or pinned, for a device), and `flags` in f32: how many ranks take part in
    a step, then for each slot how many had a gradient (or the fraction of all ranks)."""

    def __init__(self, job, slots):
        self.comm, self.taken = job.comm, []  # the memory stays with this communicator, also after a loss
        pinned = any(s.parameter.device.type != "cpu" for s in slots)
        counts = {torch.float32: len(slots) + 1}
        for slot in slots:
            counts[slot.parameter.dtype] = counts.get(slot.parameter.dtype, 0) + slot.parameter.numel()
        flat = {dtype: self.take(count, dtype, pinned) for dtype, count in counts.items()}
        self.flag_tensor = flat[torch.float32][:len(slots) + 1]
        self.flags = (ctypes.c_float * (len(slots) + 1)).from_address(self.flag_tensor.data_ptr())
        self.ones = bytes((ctypes.c_float * (len(slots) + 1))(*[1] * (len(slots) + 1)))
        at = {dtype: 0 for dtype in counts}
        at[torch.float32] = len(slots) + 1
        for slot in slots:
            p = slot.parameter
            slot.view = flat[p.dtype].as_strided(p.size(), p.stride(), at[p.dtype])
            slot.staged = staging.needed(p)
            at[p.dtype] += p.numel()

    def take(self, count, dtype, pinned):
        if pinned:
            return torch.zeros(count, dtype=dtype, pin_memory=True)
        address = lib.gw_alloc(self.comm, max(count, 1) * torch.empty(0, dtype=dtype).element_size())
        if not address:
            raise GradwireError(f"out of memory for {count} gradients of type {dtype}", "MEMORY")
        self.taken.append(address)
        return memory(address, count, dtype)

    def write_flags(self, active, unused):
        """Sets the flags of this rank; unused: places of slots without a gradient."""
        ctypes.memmove(self.flags, self.ones, len(self.ones))
        self.flags[0] = active
        for place in unused:
            self.flags[place] = 0

    def all_used(self):
        """Whether every slot had a gradient on at least one rank."""
        return bytes(self.flags) == self.ones or 0 not in self.flags[1:]

    def free(self):
        """The memory must not be used afterwards."""
        for address in self.taken:
            lib.gw_free(self.comm, address)
        self.taken = []


def entries(slots, flags):
    """The tensors to commit a Reducer with; flags come first."""
    rows = [("gradwire.flags", flags, None, 0, True, 0)]
    for slot in slots:
        p = slot.parameter
        matrix = p.dim() >= 2 and p.numel() > 0
        numbers = torch.view_as_real(slot.view) if p.is_complex() else slot.view
        rows.append((slot.name, numbers, p if p.device.type == "cpu" else None, p.shape[0] if matrix else 0,
                     p.dim() < 2, slot.batch))
    return rows
