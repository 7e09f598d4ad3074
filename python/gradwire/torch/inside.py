"""The optimiser inside the reducer. Where the synchronization works on weights (periodic, delayed) or servers keep them
(asp, ssp, backup), the library calls back for each update: of a whole parameter, or of the shard that this rank's
server owns. The driver's thread makes the call; an exception is raised by the optimiser's next call."""
import collections
import weakref

import torch

from gradwire._library import GradwireError
from gradwire.torch.reducer import memory


def works_by_element(kind):
    """Most optimisers of torch do; others may need the whole parameter, for its norm for example."""
    return kind.__module__.startswith("torch.optim") and kind.__name__ not in ("Adafactor", "Muon")


def with_rate_scaled(kind, settings, by):
    """The settings of a group for an update that is so much of a step (asp, ssp)."""
    if by == 1:
        return settings
    if settings.get("lr") is None:
        raise GradwireError(f"{kind.__name__} has no learning rate (lr), which asp and ssp divide by the number of "
                            "workers: use sync=bsp or backup", "UNSUPPORTED")
    return {**settings, "lr": settings["lr"] * by}


class Inside:
    """`slots` are indexed by the reducer's tensors (flags are not sent in this mode). The optimiser keeps the state of
    whole parameters; this object keeps that of parts: `parts` are parameters over the server's memory, by name, first
    element and count, and `part_states` the optimiser's state of them."""

    def __init__(self, owner):
        self.owner, self.slots, self.error = weakref.ref(owner), {}, None
        self.forget()

    def begin(self, owner, slots, saved):
        """Called before the reducer is committed; saved: a result of state()."""
        self.slots = dict(enumerate(slots))
        named = {slot.name: slot for slot in slots}
        for (name, first, count), state in saved:
            self.part_states[self.part(owner, named[name], first, count)] = state

    def forget(self):
        """The memory of the reducer is gone."""
        self.views, self.parts, self.part_states = {}, {}, collections.defaultdict(dict)
        self.readying = None  # the slot whose gradient is just being handed over

    def moved(self):
        """The memory of the reducer has moved."""
        self.views, self.readying = {}, None

    def raise_error(self):
        if self.error is not None:
            error, self.error = self.error, None
            try:
                raise error
            finally:
                del error  # its traceback refers to this frame and its callers

    def update(self, update):
        owner = self.owner()
        if owner is None:
            return
        try:
            with torch.no_grad():
                self.dispatch(owner, self.slots[update.tensor], update)
        except BaseException as error:  # must not cross the library
            self.error = self.error or error

    def dispatch(self, owner, slot, update):
        own = update.weights == slot.parameter.data_ptr()
        if own and self.readying is slot and not slot.used:
            return  # it had no gradient: nothing happens to it, as in a single process
        settings = with_rate_scaled(type(owner._inner), owner._settings.at(update.step)[slot.group], update.rate_scale)
        if update.count != slot.parameter.numel():
            self.update_part(owner, slot, update, settings)
            return
        weights, gradient = (self.view(slot, at) for at in (update.weights, update.gradient))
        gradient = gradient if update.scale == 1 else gradient * update.scale
        if update.temporary:
            weights.add_(gradient, alpha=-settings["lr"])
        else:
            self.update_whole(owner, slot, weights, gradient, settings, update.momentum)
            slot.updated = update.step + 1

    def view(self, slot, address):
        key = slot.name, address
        if key not in self.views:
            p = slot.parameter
            self.views[key] = memory(address, p.numel(), p.dtype).as_strided(p.size(), p.stride())
        return self.views[key]

    @staticmethod
    def update_whole(owner, slot, weights, gradient, settings, momentum):
        """Uses the parameter's own state, on weights that may be another copy: the forward pass may use the
        parameter. momentum: that the gradient has had."""
        stand_in = torch.nn.Parameter(weights)
        stand_in.grad = gradient
        if slot.parameter in owner.state:
            owner.state[stand_in] = owner.state[slot.parameter]
        owner._update([{**settings, "params": [stand_in]}], owner.state, {stand_in} if momentum else ())
        if stand_in in owner.state:
            owner.state[slot.parameter] = owner.state.pop(stand_in)

    def update_part(self, owner, slot, update, settings):
        part = self.part(owner, slot, update.first, update.count)
        if part.data_ptr() != update.weights:
            part.data = memory(update.weights, update.count, slot.parameter.dtype)
        gradient = memory(update.gradient, update.count, slot.parameter.dtype)
        part.grad = gradient if update.scale == 1 else gradient * update.scale
        owner._update([{**settings, "params": [part]}], self.part_states, {part} if update.momentum else ())

    def part(self, owner, slot, first, count):
        key = slot.name, first, count
        if key not in self.parts:
            self.check_part(type(owner._inner), *key)
            self.parts[key] = torch.nn.Parameter(torch.empty(0, dtype=slot.parameter.dtype))
        return self.parts[key]

    def check_part(self, kind, name, first, count):
        for (other, begin, length), part in self.parts.items():
            if other == name and begin < first + count and first < begin + length and self.part_states.get(part):
                raise GradwireError(f'parameter "{name}" has been cut again, and the state of {kind.__name__} belongs '
                                    "to its old parts: use a schedule that is not tuned", "UNSUPPORTED")

    def state(self):
        """The optimiser's state of parts, to be saved."""
        return [(key, self.part_states[part]) for key, part in self.parts.items() if part in self.part_states]
