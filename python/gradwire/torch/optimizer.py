"""DistributedOptimizer: a torch optimiser whose gradients travel by a strategy.

    optimizer = gw.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters(),
                                        strategy="schedule=dear compress=topk:ratio=0.01")

Hooks hand each gradient over when backward has completed it, and backward() ends when every parameter.grad holds the
average, as with DDP. Where the schedule first sends what the next forward pass needs first, neither backward() nor
step() waits: each module waits for its own parameters before its forward and updates them then. Where the
synchronization works on weights (periodic, delayed) the optimiser runs inside the reducer, tensor by tensor. In both
cases parameter.grad raises an error from backward() until the update.

The first step only learns the order of the parameters; its gradients are sent when backward() ends."""
import contextlib
import os
import warnings
import weakref

import torch

from gradwire._library import GradwireError
from gradwire.torch import (backward, compiling, finite, gradients, horovod, inside, joining, objects, operations,
                            order, staging, state_hooks)
from gradwire.torch.backward import current_pass
from gradwire.torch.compiling import is_tracing
from gradwire.torch.errors import ArgumentError
from gradwire.torch.process_sets import global_process_set, job_of_optimizer
from gradwire.torch.reducer import Reducer, schedule_of, strategy_file

FORWARD_FIRST = ("dear", "p3", "bytescheduler", "tictac")  # schedules whose tail hides behind the next forward pass
ON_ITS_WAY = ("it is on its way to the other ranks. Call optimizer.synchronize() before step(), or optimizer.flush() "
              "after it; for several backward passes a step give backward_passes_per_step")
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


class Distributed:
    """Mixed into the class of the wrapped optimiser, whose step() and state it uses."""

    def _begin(self, given, inner, job, named_parameters, strategy, backward_passes_per_step, op, sparse_as_dense,
               nonfinite, after):
        named = None if named_parameters is None else list(named_parameters)
        self._given, self._inner, self._job, self._strategy = given, inner, job, strategy
        self._passes, self._op, self._named = backward_passes_per_step, op, named
        self._sparse_as_dense, self._nonfinite, self._after = sparse_as_dense, nonfinite, after
        self._slots = gradients.named_slots(self.param_groups, named)
        self._updated = 0  # as Slot.updated, of all of them
        self._order = order.ForwardOrder([s.parameter for s in self._slots])
        self._reducer = self._buffers = self._saved = None
        self._inside = inside.Inside(self)
        self._forward_first = schedule_of(strategy, self._job.strategy, os.environ.get("GRADWIRE_STRATEGY"),
                                          strategy_file()) in FORWARD_FIRST
        self._learning, self._synchronized, self._ready, self._unused, self._pending = True, False, 0, 0, 0
        self._flags_known, self._all_used, self._snapshot = False, True, []
        self._pass, self._due, self._announced = None, False, False  # _due: a gradient has had all its backward passes
        self._relearn = 0  # forward passes that are watched before the order is settled again
        self._descent = staging.Descent()
        self._number = len(self._job.optimizers)
        self._job.optimizers.append(weakref.ref(self))
        self._removals = [self._watch_forward()] if self._forward_first else []
        if self._job.layers is not None:
            self._job.layers.watch.hook()
        self._unhooked = self._slots
        self._hook()

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

    def _hook(self):
        """Hooks parameters that are not hooked yet; some may have been unfrozen since."""
        for slot in self._unhooked:
            if slot.parameter.requires_grad:
                slot.kept = order.after_accumulation(slot.parameter, accumulation(weakref.ref(self), slot))
        self._unhooked = [s for s in self._unhooked if s.kept is None]

    # ---- backward ----

    def _send(self, slot):
        """Hands the gradient of a slot, or zeros, to the reducer."""
        if slot.pending:
            if slot.parameter.grad is not None and slot.parameter.grad is not slot.missing:
                raise GradwireError(f'parameter "{slot.name}" was used before its update: nothing called its module. Call '
                                    "optimizer.flush() before you use parameters in another way")
            self._apply([slot])
        gradient, slot.parameter.grad = slot.parameter.grad, None
        slot.used, slot.ready = gradient is not None, True
        self._ready += 1
        if gradient is None:
            self._unused += 1
            slot.view.zero_()
            self._hand_over(slot)
            return
        if gradient.is_sparse:
            gradient = self._made_dense(slot, gradient)
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

    # ---- step ----

    def step(self, closure=None):
        """Completes the exchange of this step's gradients and updates the parameters, or defers the updates until the
        forward passes that use them."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        if self._synchronized:
            self._synchronized = False
            finite.check(self)
            self._update_all()
        else:
            self._announce()
            self._exchange(1)
            finite.check(self)
            if self._reducer.updates or self._forward_first:
                self._defer()
            else:
                self._settle()
                self._update_all()
        self._hook()
        self._given._opt_called = True  # a learning-rate schedule of the given optimiser asks it
        return loss

    def _update_all(self):
        super().step()
        self._updated = self._reducer.number()

    def set_backward_passes_per_step(self, passes):
        """From the next step on."""
        self._passes = passes

    def synchronize(self):
        """Waits until every parameter.grad holds the average, where backward() has not; step() then only updates."""
        if not self._synchronized:
            self._announce()
            self._exchange(1)
            if self._reducer.updates:
                raise GradwireError(f"synchronize(): {ON_WEIGHTS}", "UNSUPPORTED")
            self._receive()

    @contextlib.contextmanager
    def skip_synchronize(self):
        """For step() after synchronize(), as in Horovod; here step() knows by itself."""
        if not self._synchronized:
            raise GradwireError("skip_synchronize(): synchronize() has to be called before")
        yield

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

    def flush(self):
        """Completes every update. Call it before parameters are used outside of a forward pass, as in
        model.state_dict()."""
        if self._ready:
            raise GradwireError("after backward() step() or synchronize() has to come first: gradients are on their "
                                "way already")
        self._apply_pending()
        if self._reducer is not None and self._reducer.updates:
            self._reducer.flush()
        self._inside.raise_error()

    def _apply_pending(self):
        self._apply([s for s in self._slots if s.pending])

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

    # ---- updates before the next forward pass ----

    def _defer(self):
        """Defers the updates, with the present settings of the groups: a learning-rate schedule may change them."""
        if self._relearn:
            self._relearn -= 1
            if not self._relearn:
                self._settle_order()
        self._snapshot = [{k: v for k, v in g.items() if k != "params"} for g in self.param_groups]
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
                     self.state)
        for slot in slots:
            slot.updated = self._reducer.number()
        for slot in zeroed:  # after step(), where others keep their gradients
            slot.parameter.grad = None

    def _update(self, groups, state):
        """The wrapped optimiser on some parameters only."""
        self._inner.param_groups, self._inner.state = groups, state
        type(self._inner).step(self._inner)

    # ---- beginning and end ----

    def _commit(self):
        """Collective: all ranks agree on the parameters, and take the first rank's order of them."""
        if self._number:
            self._job.close_orphans()
        named = [(s.name, s.parameter) for s in self._slots]
        objects.agree(named, "DistributedOptimizer", self._job)
        saved = self._saved or {}
        names = self._settle_order() if self._learning else [s.name for s in self._slots]
        if sorted(saved.get("order", ())) == sorted(names):
            names = saved["order"]
        names = objects.pass_object(self._job, names, 0, "DistributedOptimizer")
        self._reorder(names)
        held = [s.parameter.grad for s in self._slots]  # gradients of this first step are already computed
        self._buffers = gradients.Buffers(self._job, self._slots)
        rows = gradients.entries(self._slots, self._buffers.flag_tensor)
        mine = self._is_mine(saved)
        self._inside.begin(self, self._slots, saved["parts"] if mine else ())  # others may push as soon as they commit
        self._reducer = Reducer(self._job, rows, self._strategy, self._op, saved.get("steps", 0), self._inside.update,
                                finite.ACTIONS[self._nonfinite], self._after)
        for place, (slot, gradient) in enumerate(zip(self._slots, held)):
            slot.place, slot.index = place + 1, place + (not self._reducer.updates)
            slot.parameter.grad = gradient
            slot.weights = slot.parameter.detach() if self._reducer.updates else None
        if self._learning:
            self._order.merge(self._sizes())
        self._learning, self._saved = False, None
        if mine:
            self._reducer.restore(saved["state"])
        if saved:
            self._job.gather(0)  # no rank may push to a server that does not have its weights yet

    def _reorder(self, names):
        place = {name: i for i, name in enumerate(names)}
        old, self._slots = self._slots, sorted(self._slots, key=lambda s: place[s.name])
        self._order.renumber([self._slots.index(s) for s in old])

    def _is_mine(self, saved):
        """Whether this rank saved it and can continue from it."""
        if "state" not in saved:  # a step number, after a loss
            return False
        if (saved["rank"], saved["size"]) == (self._job.rank, self._job.size):
            return True
        warnings.warn(f"the optimiser's state was saved by rank {saved['rank']} of {saved['size']}, and this is "
                      f"rank {self._job.rank} of {self._job.size}: the codec's residuals start from zero")
        return False

    def __del__(self):
        """May run at any moment, also inside a callback of the library. Closing waits for other ranks, so it is
        deferred until the next reducer is committed."""
        if hasattr(self, "_slots") and self._job.comm is not None:
            if self._reducer is not None:
                self._job.orphans[self._number] = self._reducer, self._buffers
                self._reducer = self._buffers = None
            self.detach()

    def detach(self):
        """Ends its part in the job: removes hooks and frees memory; join() no longer waits for it."""
        self._close()
        for removal in self._removals:
            removal.remove()
        self._removals = []
        self._job.optimizers[self._number] = lambda: None
        for slot in self._slots:
            if slot.kept is not None:
                slot.kept[-1].remove()
                slot.kept = None

    def _close(self):
        """Closes the reducer; the next step commits a new one."""
        if self._reducer is not None:
            self._drop()
            self._reducer.close()
            self._inside.forget()
            self._reducer = None
        if self._buffers is not None:  # also where committing the reducer has failed
            for slot in self._slots:
                slot.view = slot.weights = None
            self._buffers.free()
            self._buffers = None

    def _drop(self):
        """Drops gradients that are computed or in flight."""
        for slot in self._slots:
            slot.parameter.grad = slot.outside = None
            slot.passes, slot.ready, slot.pending = 0, False, False
        self._pending, self._ready, self._unused = 0, 0, 0
        self._synchronized, self._flags_known, self._descent = False, False, staging.Descent()
        self._pass, self._due, self._announced = None, False, False

    def step_number(self):
        """Number of the present training step, from 0, or from the state that was loaded."""
        return self._reducer.number() if self._reducer is not None else (self._saved or {}).get("steps", 0)

    def _shadow_step(self):
        """One step without data, for join(); False when no rank had data."""
        self.zero_grad()
        self._exchange(0)
        if self._reducer.updates:
            raise GradwireError("join(): a synchronization that works on weights cannot go on without one of the ranks",
                                "UNSUPPORTED")
        self._settle()
        if self._buffers.flags[0] == 0:
            for slot in self._slots:
                slot.parameter.grad = None
            return False
        self._update_all()
        return True

    # ---- what users of an optimiser call ----

    def zero_grad(self, set_to_none=True):
        if self._ready:
            raise GradwireError("zero_grad() was called after backward() and before step(): gradients are on their way "
                                "already")
        self._synchronized = False
        for slot in self._slots:
            slot.passes = 0
            if slot.parameter.grad is not None:
                if set_to_none or slot.pending:
                    slot.parameter.grad = None
                else:
                    slot.parameter.grad.detach().zero_()

    def add_param_group(self, group):
        if not hasattr(self, "_slots"):
            return super().add_param_group(group)
        if self._reducer is not None:
            raise GradwireError("add_param_group() has to come before the first step of a DistributedOptimizer, and "
                                "before its backward()")
        super().add_param_group(group)
        try:
            slots = gradients.named_slots(self.param_groups, self._named)
        except GradwireError:
            self.param_groups.pop()
            raise
        known, seen = {s.parameter: s for s in self._slots}, self._order
        self._slots = [known.get(s.parameter, s) for s in slots]
        self._order = order.ForwardOrder([s.parameter for s in self._slots])
        self._order.called, self._order.completed = seen.called, seen.completed
        self._unhooked = [s for s in self._slots if s.kept is None]
        self._hook()

    def state_dict(self):
        """That of the wrapped optimiser, and what this rank's step keeps (residuals of a codec)."""
        self.flush()
        state = super().state_dict()
        if self._reducer is not None:
            state["gradwire"] = {"rank": self._job.rank, "size": self._job.size, "state": self._reducer.save(),
                                 "parts": self._inside.state(),
                                 "steps": self._reducer.number(),
                                 "order": [s.name for s in self._slots]}
        elif self._saved:
            state["gradwire"] = self._saved
        return state

    def load_state_dict(self, state_dict):
        """On all ranks. Each one's own file restores its residuals too; that of another rank all the rest."""
        self.flush()
        state_dict = dict(state_dict)
        saved = state_dict.pop("gradwire", None)
        super().load_state_dict(state_dict)
        self._given.param_groups, self._given.state = self.param_groups, self.state  # for its learning-rate schedule
        self._close()
        self._saved, self._updated = saved, (saved or {}).get("steps", 0)
        for slot in self._slots:
            slot.updated = 0


def DistributedOptimizer(optimizer, named_parameters=None, strategy=None, backward_passes_per_step=1,
                         op=operations.Average, compression=None, sparse_as_dense=False,
                         process_set=global_process_set, nonfinite="raise", after=None, **horovods):
    """The optimiser, of a class derived from its own: step() updates with the average (or sum) over all ranks of
    gradients that were accumulated over backward_passes_per_step backward passes. nonfinite: what step() does if a
    gradient of this rank holds a NaN or an infinity: "raise", "warn" or "ignore". after: the graph of a model with branches, for
    schedule=tictac: {name of a parameter: names of those on whose modules its module builds}; where a name is not given,
    the parameter before it in the forward pass. `compression` and what else scripts for Horovod give: horovod.py."""
    base = type(optimizer)
    named_parameters = None if named_parameters is None else list(named_parameters)
    job, op = job_of_optimizer(process_set, "DistributedOptimizer"), operations.operation("DistributedOptimizer", op)
    strategy = horovod.strategy(strategy, compression, op, **horovods)
    if isinstance(optimizer, Distributed):
        raise GradwireError("DistributedOptimizer: this optimiser is one already")
    if isinstance(optimizer, torch.optim.LBFGS):
        raise GradwireError("LBFGS evaluates the model several times in one step, which cannot be distributed",
                            "UNSUPPORTED")
    if op not in (operations.Average, operations.Sum):
        raise ArgumentError("DistributedOptimizer: op has to be Average or Sum")
    if backward_passes_per_step < 1:
        raise ArgumentError(f"DistributedOptimizer: backward_passes_per_step is {backward_passes_per_step}, but has to "
                            "be 1 or more")
    if nonfinite not in finite.ACTIONS:
        raise ArgumentError(f"DistributedOptimizer: nonfinite is {nonfinite!r}, but has to be one of "
                            f"{', '.join(finite.ACTIONS)}")
    known = {slot.name for slot in gradients.named_slots(optimizer.param_groups, named_parameters)} if after else ()
    for name in (n for pair in (after or {}).items() for n in (pair[0], *pair[1])):
        if name not in known:
            raise ArgumentError(f'DistributedOptimizer: after names "{name}", and there is no such parameter')
    inner, wrapped = object.__new__(base), object.__new__(type(base.__name__, (Distributed, base), {}))
    for copy in (inner, wrapped):
        copy.__dict__.update(optimizer.__dict__)
        copy.__dict__.pop("step", None)  # a learning-rate schedule may have put its own there
    wrapped._begin(optimizer, inner, job, named_parameters, strategy, backward_passes_per_step, op, sparse_as_dense,
                   nonfinite, after)
    return wrapped
