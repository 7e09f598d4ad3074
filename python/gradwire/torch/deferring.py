"""Updates that DistributedOptimizer makes before the next forward pass of the modules that use the parameters."""
import weakref

import torch

from gradwire.torch import momentum, order, state_hooks
from gradwire.torch.settings import copied


class Deferring:
    """The part of Distributed (optimizer.py) that waits for averages and updates parameters with them."""

    def _watch_forward(self):
        me = weakref.ref(self)

        def before(module):
            one = me()
            if one is not None and (one._pending or one._learning or one._relearn):
                one._before_forward(module)

        def traced():
            one = me()
            if one is not None:
                one._forget_order()

        return order.before_every_forward(before, traced)

    def _defer(self):
        """Defers the updates, with the present settings of the groups: a learning-rate schedule may change them."""
        if self._relearn:
            self._relearn -= 1
            if not self._relearn:
                self._settle_order()
        self._snapshot = copied(self.param_groups)
        for slot in self._slots:
            slot.pending = True
        self._pending = len(self._slots)
        if self._forward_first:
            self._apply([self._slots[i] for i in self._order.loose])
        else:
            self._apply(self._slots)

    def _before_forward(self, module):
        if self._learning or self._relearn:
            if torch.is_grad_enabled():  # others may call modules by themselves that training has in a compiled graph
                self._order.saw(module)
        elif self._pending:
            mine = self._order.plan.get(module)
            if mine:
                self._apply([self._slots[i] for i in mine if self._slots[i].pending])

    def _settle_order(self):
        """Returns the names in the order of the forward pass."""
        self._removals += state_hooks.hook(self._order.called, self._order.index, self)
        names = [self._slots[i].name for i in self._order.settle()]
        if not self._learning:
            self._order.merge(self._sizes())
        return names

    def _forget_order(self):
        """torch.compile traces modules, which will call no hooks. The order is learned again, from the rest of this
        forward pass and all of the next one; until then step() waits."""
        self._apply_pending()
        if not self._learning:
            self._order.learn()
            self._relearn = 2

    def _sizes(self):
        return [s.parameter.numel() * s.parameter.element_size() for s in self._slots]

    def _apply(self, slots):
        """Waits for these slots and updates them; if waiting fails, it updates none."""
        if not slots:
            return
        for slot in slots:
            self._reducer.wait(slot.index)
        if not self._reducer.updates:
            self._update_some(slots)
        for slot in slots:
            slot.pending = False
            if slot.parameter.grad is slot.missing:
                slot.parameter.grad = None
        self._pending -= len(slots)
        self._inside.raise_error()

    def _update_some(self, slots):
        if not self._flags_known:
            self._reducer.wait(0)
            self._read_flags()
        parts = [[] for _ in self._snapshot]
        zeroed = [slot for slot in slots if slot.parameter.grad is None]
        for slot in slots:
            self._give_back(slot)
            parts[slot.group].append(slot.parameter)
        self._update([{**settings, "params": part} for settings, part in zip(self._snapshot, parts) if part],
                     self.state, self._taken)
        for slot in slots:
            slot.updated = self._reducer.number()
        for slot in zeroed:  # after step(), where others keep their gradients
            slot.parameter.grad = None

    def _update(self, groups, state, taken):
        """The wrapped optimiser on some parameters only. taken: those whose gradients have had their momentum."""
        gives_up = taken and self._momentum
        groups, decayed = momentum.left_out(groups, state, taken, self._momentum) if gives_up else (groups, [])
        self._inner.param_groups, self._inner.state = groups, state
        type(self._inner).step(self._inner)
        momentum.apply_decay(decayed)

    def _apply_pending(self):
        self._apply([s for s in self._slots if s.pending])
