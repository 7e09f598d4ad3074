"""The reducer of a DistributedOptimizer: when it is committed, closed and left behind."""
import warnings

from gradwire.torch import factors, finite, gradients, momentum, objects, staging
from gradwire.torch.inside import works_by_element
from gradwire.torch.reducer import Reducer
from gradwire.torch.settings import Settings


class Committing:
    """The part of Distributed (optimizer.py) that makes and ends the reducer."""

    def _commit(self):
        """Collective: all ranks agree on the parameters, and take the first rank's order of them."""
        if self._number:
            self._job.close_orphans()
        named = sorted(((s.name, s.parameter) for s in self._slots), key=lambda pair: pair[0])
        objects.agree(named, "DistributedOptimizer", self._job)  # a restarted rank does not know the others' order yet
        saved = self._saved or {}
        names = self._settle_order() if self._learning else [s.name for s in self._slots]
        if sorted(saved.get("order", ())) == sorted(names):
            names = saved["order"]
        names = objects.pass_object(self._job, names, 0, "DistributedOptimizer")
        self._reorder(names)
        if self._takes_factors:
            for slot, rows in zip(self._slots, factors.largest_rows(self._job, self._slots)):
                slot.batch = rows
        held = [s.parameter.grad for s in self._slots]  # gradients of this first step are already computed
        self._buffers = gradients.Buffers(self._job, self._slots)
        rows = gradients.entries(self._slots, self._buffers.flag_tensor)
        mine = self._is_mine(saved)
        self._inside.begin(self, self._slots, saved["parts"] if mine else ())  # others may push as soon as they commit
        self._settings = Settings(self.param_groups, saved.get("steps", 0), saved.get("rate") if mine else None)
        use, self._momentum = momentum.of(type(self._inner), self.param_groups)
        self._reducer = Reducer(self._job, rows, self._strategy, self._op, saved.get("steps", 0), self._inside.update,
                                finite.ACTIONS[self._nonfinite], self._after, self._settings.rate,
                                (use, self._momentum), whole=not works_by_element(type(self._inner)),
                                optimizer=type(self._inner).__name__.lower())
        for place, (slot, gradient) in enumerate(zip(self._slots, held)):
            slot.place, slot.index = place + 1, place + (not self._reducer.updates)
            slot.parameter.grad = gradient
            slot.weights = slot.parameter.detach() if self._reducer.updates else None
        self._choose_factors()
        self._give_up_momentum()
        self._uses_settings = self._reducer.updates or self._reducer.may_compress()
        if self._learning:
            self._order.merge(self._sizes())
        self._learning, self._saved = False, None
        if mine:
            self._reducer.restore(saved["state"])
        if saved:
            self._job.gather(0)  # no rank may push to a server that does not have its weights yet

    def _choose_factors(self):
        """Asks the reducer, which has a communicator, which gradients it wants as factors."""
        for slot in self._slots:
            slot.room = slot.batch if self._reducer.wants_factors(slot.index) else 0

    def _give_up_momentum(self):
        """Asks the reducer to which gradients the codec applies the optimiser's momentum."""
        self._taken = {s.parameter for s in self._slots if self._reducer.takes_momentum(s.index)}

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
                slot.kept = slot.complete = None
            if slot.layer is not None:
                slot.layer.remove()
                slot.layer = None

    def _close(self):
        """Closes the reducer; the next step commits a new one."""
        if self._reducer is not None:
            self._drop()
            self._reducer.close()
            self._inside.forget()
            self._reducer = None
        if self._buffers is not None:  # also where committing the reducer has failed
            for slot in self._slots:
                slot.view = slot.weights = slot.room = None
            self._buffers.free()
            self._buffers = None

    def _drop(self):
        """Drops gradients that are computed or in flight."""
        for slot in self._slots:
            slot.parameter.grad = slot.outside = None
            slot.forget_factors()
            slot.passes, slot.ready, slot.pending = 0, False, False
        self._pending, self._ready, self._unused = 0, 0, 0
        self._synchronized, self._flags_known, self._descent = False, False, staging.Descent()
        self._pass, self._due, self._announced = None, False, False
