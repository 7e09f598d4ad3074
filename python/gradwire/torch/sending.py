"""The way of a gradient in a step of DistributedOptimizer: from the hook that says that it is complete, through the
reducer, to parameter.grad."""
import weakref

import torch

from gradwire._library import GradwireError
from gradwire.torch import backward, compiling, factors, gradients, joining, operations, order
from gradwire.torch.backward import current_pass
from gradwire.torch.compiling import is_tracing

ON_ITS_WAY = ("it is on its way to the other ranks. Call optimizer.synchronize() before you clip or read it, or "
              "optimizer.flush() after step(); for several backward passes a step give backward_passes_per_step")
ON_WEIGHTS = "with a synchronization that works on weights there is no average gradient"


def accumulation(optimizer, slot):
    """The hook for a complete gradient of the slot; optimizer is a weak reference."""
    def accumulated(*_):
        if is_tracing():
            outside()
            return
        one = optimizer()
        if one is None:
            return
        slot.passes += 1
        if slot.layer is not None:
            slot.layer.silent = False
        if one._pass != current_pass():
            one._pass = backward.enter(optimizer)
        if one._synchronized:
            one._reopen()
        if slot.passes > one._passes:
            raise GradwireError(f'parameter "{slot.name}" has had a gradient from {slot.passes} backward passes before '
                                f"one step(), but backward_passes_per_step is {one._passes}")
        if slot.passes == one._passes:
            one._due = True
            if one._reducer is not None:
                one._send(slot)
            else:
                one._order.saw_gradient(slot.parameter)

    def between_graphs():
        """Compiled autograd does not report the end of a pass."""
        accumulated()
        one = optimizer()
        if one is not None and one._end_backward(inner=True):
            one._receive()

    outside = compiling.outside(between_graphs)
    return accumulated


class Sending:
    """The part of Distributed (optimizer.py) that exchanges gradients."""

    def _hook(self):
        """Hooks parameters that are not hooked yet; some may have been unfrozen since."""
        for slot in self._unhooked:
            if slot.parameter.requires_grad:
                slot.complete = accumulation(weakref.ref(self), slot)
                slot.kept = order.after_accumulation(slot.parameter, slot.complete)
        self._unhooked = [s for s in self._unhooked if s.kept is None]

    def _layer(self, weight):
        """The factors of a parameter, which a Linear layer uses; None: it is not the optimiser's."""
        index = self._order.index.get(weight)
        if index is None or self._slots[index].complete is None:
            return None
        slot = self._slots[index]
        if slot.layer is None:
            slot.layer = factors.Layer(self, slot)
        return slot.layer

    def _send(self, slot):
        """Hands the gradient of a slot, or zeros, to the reducer."""
        kept = slot.layer is not None and bool(slot.layer.kept)
        if slot.pending:
            if kept or slot.parameter.grad is not None and slot.parameter.grad is not slot.missing:
                raise GradwireError(f'parameter "{slot.name}" was used before its update: nothing called its module. Call '
                                    "optimizer.flush() before you use parameters in another way")
            self._apply([slot])
        gradient, slot.parameter.grad = slot.parameter.grad, None
        slot.used, slot.ready = kept or gradient is not None, True
        if not self._ready and self._uses_settings:
            self._settings.record(self._reducer.number(), self.param_groups)
        self._ready += 1
        if not slot.used:
            self._unused += 1
            self._send_nothing(slot)
            return
        if kept and gradient is None and slot.layer.fits():
            self._reducer.ready_factors(slot.index, *slot.layer.take())
        else:
            self._send_whole(slot, gradient)

    def _send_whole(self, slot, gradient):
        if slot.room:
            factors.report_whole(slot)
        if gradient is not None and gradient.is_sparse:
            gradient = self._made_dense(slot, gradient)
        if slot.layer is not None:
            gradient = slot.layer.multiply(gradient)
        if gradient.requires_grad:  # from backward(create_graph=True): its graph must not include the buffers
            gradient = gradient.detach()
        if slot.staged:
            slot.outside = gradient
            self._descent.send(slot.view, gradient, slot)
            for arrived in self._descent.arrived():
                self._hand_over(arrived)
            return
        if gradient is not slot.view:
            slot.view.copy_(gradient)
        self._hand_over(slot)

    def _send_nothing(self, slot):
        if slot.room:
            self._reducer.absent(slot.index)
            return
        slot.view.zero_()
        self._hand_over(slot)

    def _made_dense(self, slot, gradient):
        if self._sparse_as_dense:
            return gradient.to_dense()
        raise GradwireError(f'the gradient of parameter "{slot.name}" is sparse, which cannot travel; make the module '
                            "with sparse=False, or the optimiser with sparse_as_dense=True", "UNSUPPORTED")

    def _hand_over(self, slot):
        self._inside.readying = slot  # its update may be called before this returns
        self._reducer.ready(slot.index)
        self._inside.readying = None

    def _end_backward(self, inner):
        """Hands over all gradients of the step, where the schedule waits for their averages; False: it does not.
        inner: another backward pass goes on around this one."""
        self._pass = None
        if not self._due:
            return False
        if inner and any(s.passes < self._passes for s in self._slots if s.parameter.requires_grad):
            self._hide()
            return False
        self._announce()
        if self._reducer is None:
            self._commit()
        if not (self._reducer.updates or self._forward_first):
            self._exchange(1)
            return True
        for slot in self._slots:  # in the first step
            if slot.passes == self._passes and not slot.ready:
                self._send(slot)
        self._hide()
        return False

    def _hide(self):
        """Lets gradients that the reducer has raise an error. Others are still this rank's own."""
        for slot in self._slots:
            if slot.ready:
                slot.hide(ON_WEIGHTS if self._reducer.updates else ON_ITS_WAY)

    def _receive(self):
        self._settle()
        self._synchronized = True

    def _reopen(self):
        """Another backward pass before step(), or after one that a GradScaler has left out. As in DDP, the old average
        plus the new gradient is averaged again; a sum cannot be."""
        if self._op == operations.Sum and any(s.parameter.grad is s.received() is not None for s in self._slots):
            raise GradwireError("another backward() before step(): with op=Sum give backward_passes_per_step, or call "
                                "zero_grad() before")
        self._synchronized = False

    def _announce(self):
        if self._job.uneven and not self._announced:
            self._announced = True
            joining.announce(self._job, joining.STEP, self._number, 0, 0, "step")

    def _exchange(self, active):
        """Hands over all remaining gradients and ends the step."""
        if self._reducer is None:
            self._commit()
        elif self._reducer.updates:
            gradients.check_places(self._slots)
        if self._ready < len(self._slots):
            for slot in self._slots:
                if not slot.ready:
                    self._send(slot)
        for slot in self._descent.arrived(wait=True):
            self._hand_over(slot)
        if not self._reducer.updates:
            self._buffers.write_flags(active, [s.place for s in self._slots if not s.used] if self._unused else ())
            self._reducer.ready(0)
        self._reducer.end()
        self._ready, self._unused, self._flags_known = 0, 0, False
        self._pass, self._due, self._announced = None, False, False
        for slot in self._slots:
            slot.ready, slot.passes = False, 0
            slot.forget_factors()  # of a backward pass that has failed
        self._inside.raise_error()

    def _settle(self):
        """Waits for all averages and puts them into the parameters' gradients."""
        self._reducer.flush()
        self._read_flags()
        for slot in self._slots:
            self._give_back(slot)

    def _read_flags(self):
        self._flags_known = True
        self._all_used = self._buffers.all_used()

    def _give_back(self, slot):
        """A parameter that no rank used has no gradient, as in a single process."""
        if not self._all_used and self._buffers.flags[slot.place] == 0:
            slot.parameter.grad = None
        elif slot.staged:
            if slot.outside is None:
                slot.outside = torch.empty_like(slot.parameter)
            slot.outside.copy_(slot.view, non_blocking=True)
            slot.parameter.grad = slot.received()
        else:
            slot.parameter.grad = slot.view
