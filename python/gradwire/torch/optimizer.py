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
import weakref

import torch

from gradwire._library import GradwireError
from gradwire.torch import factors, finite, gradients, horovod, inside, operations, order, staging
from gradwire.torch.committing import Committing
from gradwire.torch.deferring import Deferring
from gradwire.torch.errors import ArgumentError
from gradwire.torch.process_sets import global_process_set, job_of_optimizer
from gradwire.torch.reducer import technique_of
from gradwire.torch.sending import ON_WEIGHTS, Sending

FORWARD_FIRST = ("dear", "p3", "bytescheduler", "tictac")  # schedules whose tail hides behind the next forward pass


class Distributed(Sending, Deferring, Committing):
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
        self._forward_first = technique_of("schedule", strategy, self._job) in FORWARD_FIRST
        self._takes_factors = factors.are_asked_for(strategy, self._job)
        self._learning, self._synchronized, self._ready, self._unused, self._pending = True, False, 0, 0, 0
        self._flags_known, self._all_used, self._snapshot = False, True, []
        self._pass, self._due, self._announced = None, False, False  # _due: a gradient has had all its backward passes
        self._relearn = 0  # forward passes that are watched before the order is settled again
        self._descent = staging.Descent()
        self._number = len(self._job.optimizers)
        self._job.optimizers.append(weakref.ref(self))
        self._removals = [self._watch_forward()] if self._forward_first else []
        if self._takes_factors:
            self._removals.append(factors.watch(self))
        if self._job.layers is not None:
            self._job.layers.watch.hook()
        self._unhooked = self._slots
        self._hook()

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
        self._end_recorded()
        self._hook()
        self._given._opt_called = True  # a learning-rate schedule of the given optimiser asks it
        return loss

    def _end_recorded(self):
        """Ends the step of the recording, if there is one."""
        if self._job.layers is not None:
            self._job.layers.end_step(self)

    def strategy_line(self):
        """The strategy, with tuned sizes."""
        return self._reducer.strategy()

    def is_tuning(self):
        """Whether strategies or sizes are still being tried, after the first step: the same on all ranks."""
        return self._reducer is not None and self._reducer.is_tuning()

    def _update_all(self):
        if self._taken:
            self._update(self.param_groups, self.state, self._taken)
        else:
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
        self._end_recorded()
        return True

    def zero_grad(self, set_to_none=True):
        """As of the wrapped optimiser. Not between backward() and step()."""
        if self._ready:
            raise GradwireError("zero_grad() was called after backward() and before step(): gradients are on their way "
                                "already")
        self._synchronized = False
        for slot in self._slots:
            slot.passes = 0
            slot.forget_factors()
            if slot.parameter.grad is not None:
                if set_to_none or slot.pending:
                    slot.parameter.grad = None
                else:
                    slot.parameter.grad.detach().zero_()

    def add_param_group(self, group):
        """As of the wrapped optimiser, before the first step."""
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
                                 "rate": self._settings.rate(self._reducer.number() - 1),
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
    gradient of this rank holds a NaN or an infinity: "raise", "warn" or "ignore". after: the graph of a model with
    branches, for schedule=tictac: {name of a parameter: names of those on whose modules its module builds}; where a name
    is not given, the parameter before it in the forward pass. `compression` and what else scripts for Horovod give:
    horovod.py."""
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
