"""Horovod's elastic training over regroup() and shrink().

    state = hvd.elastic.TorchState(model=model, optimizer=optimizer, epoch=0, batch=0)

    @hvd.elastic.run
    def train(state):
        for state.epoch in range(state.epoch, epochs):
            ...
            state.commit()

    train(state)

When a rank is lost, the others come together again, go back to the last commit, and call the function anew. Ranks that
were started again get the state of one that survived. A job never grows while all ranks live, so commit() raises no
HostsUpdatedInterrupt."""
import copy
import functools
import itertools
import math
import os
import random

import torch

from gradwire._library import GradwireError
from gradwire.torch import recovery
from gradwire.torch.objects import broadcast_object, broadcast_optimizer_state, broadcast_parameters
from gradwire.torch.world import world


def run(function):
    """The decorator of a function whose first argument is a State."""
    @functools.wraps(function)
    def wrapper(state, *arguments, **options):
        lost = False
        while True:
            try:
                if lost:
                    _come_together(state)
                state.sync()
                return function(state, *arguments, **options)
            except GradwireError as error:
                lost = error.lost
                if not lost:
                    raise
    return wrapper


def _come_together(state):
    world().newest = recovery.regroup() if os.environ.get("GRADWIRE_ROSTER") else recovery.shrink()
    state.restore()
    state.on_reset()


class State:
    """What is saved by commit(), restored after a loss, and given to ranks that were started again."""

    def __init__(self):
        self._callbacks = []

    def register_reset_callbacks(self, callbacks):
        """Functions to call after a loss; the number of ranks may have changed."""
        self._callbacks.extend(callbacks)

    def on_reset(self):
        """Called after a loss: reset(), and the registered functions."""
        self.reset()
        for callback in self._callbacks:
            callback()

    def commit(self):
        """Copies the state, so that training can go on from here after a loss."""
        self.save()
        self.check_host_updates()

    def check_host_updates(self):
        """No hosts join a job whose ranks all live."""

    def reset(self):
        """For classes derived from this one."""


class ObjectState(State):
    """Python objects, given as keyword arguments, as attributes."""

    def __init__(self, **values):
        super().__init__()
        self._saved = values
        self.restore()

    def save(self):
        """Copies the values."""
        self._saved = {name: copy.deepcopy(getattr(self, name)) for name in self._saved}

    def restore(self):
        """Brings the copies back."""
        for name, value in self._saved.items():
            setattr(self, name, copy.deepcopy(value))

    def sync(self):
        """From the rank whose state is the newest. All ranks call it."""
        self._saved = broadcast_object(self._saved, world().newest)
        ObjectState.restore(self)


class TorchState(ObjectState):
    """Models, optimisers and samplers too: anything with a state_dict()."""

    def __init__(self, model=None, optimizer=None, **values):
        given = {"model": model, "optimizer": optimizer, **values}
        self._holders = {name: one for name, one in given.items() if hasattr(one, "load_state_dict")}
        for name, one in self._holders.items():
            setattr(self, name, one)
        super().__init__(**{name: one for name, one in given.items() if name not in self._holders})
        self.save()

    def save(self):
        """Copies states and values."""
        self._states = {name: copy.deepcopy(one.state_dict()) for name, one in self._holders.items()}
        super().save()

    def restore(self):
        """Brings the copies back."""
        for name, state in getattr(self, "_states", {}).items():
            self._holders[name].load_state_dict(state)
        super().restore()

    def sync(self):
        """From the rank whose state is the newest. All ranks call it."""
        for one in self._holders.values():
            if isinstance(one, torch.nn.Module):
                broadcast_parameters(one.state_dict(), world().newest)
            elif isinstance(one, torch.optim.Optimizer):
                broadcast_optimizer_state(one, world().newest)
            else:
                one.load_state_dict(broadcast_object(one.state_dict(), world().newest))
        super().sync()
        self.save()

    def reset(self):
        """Divides what samplers have left between the ranks that there are now."""
        for one in self._holders.values():
            if isinstance(one, ElasticSampler):
                one.reset()


class ElasticSampler(torch.utils.data.Sampler):
    """Divides the indices of a dataset that this epoch has not processed yet between the ranks there are. Include it in
    a TorchState, call record_batch() after each batch, and set_epoch() at the end of an epoch."""

    def __init__(self, dataset, shuffle=True, seed=0):
        self.dataset, self.shuffle, self.seed = dataset, shuffle, seed
        self.epoch = self.processed_num = 0
        self.reset()

    def set_epoch(self, epoch):
        """Begins an epoch: all indices again, in another order."""
        self.epoch, self.processed_num = epoch, 0
        self.reset()

    def record_batch(self, batch_idx, batch_size):
        """All ranks have processed a batch of this size."""
        self.processed_num += batch_size * world().size

    def state_dict(self):
        """The epoch, and how much of it is done."""
        return {"epoch": self.epoch, "processed_num": self.processed_num}

    def load_state_dict(self, state):
        """Goes on from such a state."""
        self.epoch, self.processed_num = state["epoch"], state["processed_num"]
        self.reset()

    def reset(self):
        """Divides what is left of the epoch between the ranks that there are now."""
        indices = list(range(len(self.dataset)))
        if self.shuffle:
            random.Random(self.seed + self.epoch).shuffle(indices)
        self.remaining_indices = indices[self.processed_num:]
        self.num_samples = math.ceil(len(self.remaining_indices) / world().size)

    def __iter__(self):
        """Some indices come again where they cannot be divided evenly."""
        total = self.num_samples * world().size
        return itertools.islice(itertools.cycle(self.remaining_indices), world().rank, total, world().size)

    def __len__(self):
        return self.num_samples
