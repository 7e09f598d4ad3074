"""Tensors that are sent again and again, such as DDP's buckets, come to lie in memory that the other ranks of the host
reach without a copy (gw_register). A tensor is registered when it is seen for the THIRD time, so that temporary ones,
for which moving pages would cost more than it brings, never are. FSDP2 makes a new tensor for each call; it may take such
tensors from the process group instead (`allocate`), which uses registered memory again.

Memory must be private again before it is freed. So a registered tensor's storage is kept here, and is let go when only
this module refers to it any more; that is looked for when a new tensor comes, and every FEW calls."""
import ctypes
import os
import sys
import threading
import weakref

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from gradwire._library import lib

LEAST_BYTES = 128 << 10
THIRD, FEW = 3, 64
COUNTED, MOST = 512, 128  # tensors whose calls are counted; that are registered: each has an open file
references = getattr(torch._C, "_storage_Use_Count", None)  # None in old versions of torch: nothing is registered
every = weakref.WeakSet()


class Registered:
    """The tensors of one job. `comm` stays valid until `end`; `communicators` know what is under way."""

    def __init__(self, comm):
        self.comm, self.lock, self.calls, self.pid = comm, threading.Lock(), 0, os.getpid()
        self.communicators = weakref.WeakSet()
        self.seen = {}  # (address, bytes) of a tensor: its storage, weakly, and how often it was seen
        self.kept = {}  # (address, bytes) of a registered tensor: its storage
        self.room = {}  # by bytes: storages of tensors that were made here
        every.add(self)

    def see(self, tensor):
        """Before a call with a contiguous tensor."""
        if references is None or tensor.nbytes < LEAST_BYTES or os.getpid() != self.pid:
            return
        with self.lock:
            self.calls += 1
            if self.calls % FEW == 0:
                self.let_go()
            place = (tensor.data_ptr(), tensor.nbytes)
            if place not in self.kept and self.comm is not None and self.count(place, tensor.untyped_storage()):
                self.register(place, tensor.untyped_storage())

    def count(self, place, storage):
        """Whether this tensor is seen often enough. A refused one is not tried again."""
        weak, times = self.seen.get(place, (None, 0))
        if weak is None or weak.cdata != storage._cdata or weak.expired():
            self.let_go()
            weak, times = StorageWeakRef(storage), 0
        self.seen[place] = weak, times + 1
        return times + 1 == THIRD

    def register(self, place, storage):
        """While a call uses memory, its pages must stay."""
        if storage._cdata in self.in_use():
            self.seen[place] = self.seen[place][0], THIRD - 1  # the next time
        elif not is_pinned(storage):
            self.keep(place, storage)

    def keep(self, place, storage):
        if len(self.kept) < MOST and lib.gw_register(self.comm, *place) == 0:
            self.kept[place] = storage
        return place in self.kept

    def allocate(self, count, dtype):
        """A new tensor in registered memory, as torch.empty."""
        size = count * torch.empty(0, dtype=dtype).element_size()
        if references is None or size < LEAST_BYTES:
            return torch.empty(count, dtype=dtype)
        with self.lock:
            storage = unused(self.room.get(size, ()))
            if storage is None:
                storage = torch.UntypedStorage(size)
                if self.comm is not None and self.keep((storage.data_ptr(), size), storage):
                    self.room.setdefault(size, []).append(storage)
            return torch.empty(0, dtype=dtype).set_(storage, 0, (count,))

    def in_use(self):
        works = [work for communicator in self.communicators for work in list(communicator.pending)]
        return {t.untyped_storage()._cdata for work in works for t in work.keep or () if is_plain(t)}

    def let_go(self):
        """Ends the registration of tensors that nobody else has, and forgets those that are gone."""
        for place, storage in list(self.kept.items()):
            if references(storage._cdata) == 1 and not any(storage is one for one in self.room.get(place[1], ())):
                lib.gw_unregister(self.comm, place[0])
                del self.kept[place]
        if len(self.seen) > COUNTED or self.calls % FEW == 0:
            self.seen = {place: weak for place, weak in self.seen.items() if not weak[0].expired()}

    def end(self):
        """Before the communicator is finalised, when no call is under way."""
        with self.lock:
            for address, _ in self.kept:
                lib.gw_unregister(self.comm, address)
            self.comm, self.kept, self.seen, self.room = None, {}, {}, {}


def holders(storages):
    """How often Python refers to each."""
    return [sys.getrefcount(storage) for storage in storages]


def count_ours():
    """That of a storage which only `room` and `kept` refer to."""
    room = [torch.empty(1).untyped_storage()]
    kept = {0: room[0]}
    return holders(room)[0] if kept else 0


def unused(storages):
    """One that neither a tensor nor a Python variable has; None: there is none."""
    for index, count in enumerate(holders(storages)):
        if count == OURS and references(storages[index]._cdata) == 1:
            return storages[index]
    return None


OURS = count_ours()


def is_plain(thing):
    return isinstance(thing, torch.Tensor) and thing.layout is torch.strided


def is_pinned(storage):
    """A device writes to pinned memory behind the kernel's back, so its pages must stay."""
    return torch.cuda.is_available() and storage.is_pinned()


def keep_in_child():
    """A forked child shares registered memory. If it freed and reused it, the parent's tensors would change."""
    for one in every:
        for storage in one.kept.values():
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(storage))


os.register_at_fork(after_in_child=keep_in_child)
