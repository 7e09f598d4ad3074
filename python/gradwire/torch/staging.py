"""Tensors on an accelerator go through pinned host buffers, chunk by chunk: while one chunk is on the network the next
one is copied from the device, and the one before back to it. Copies are torch's own, in the order of the current
stream. GRADWIRE_STAGE=always stages tensors in host memory too, for tests."""
import collections
import os

import torch

CHUNK_BYTES = 4 << 20


def needed(tensor):
    return tensor.device.type != "cpu" or os.environ.get("GRADWIRE_STAGE") == "always"


def event_after(device):
    """An event at the present end of the device's stream; None where copies were complete when they returned."""
    module = getattr(torch, device.type, None)
    if device.type == "cpu" or not hasattr(module, "Event"):
        return None
    event = module.Event()
    event.record()
    return event


class Stage:
    """The host's copy of a dense tensor, cut into chunks."""

    def __init__(self, tensor):
        self.device = tensor.device
        self.there = tensor.view(-1).split(max(CHUNK_BYTES // tensor.element_size(), 1))
        self.ordered = event_after(self.device) is not None
        self.here = torch.empty(tensor.numel(), dtype=tensor.dtype, pin_memory=self.ordered)
        self.here = self.here.split(max(CHUNK_BYTES // tensor.element_size(), 1))

    def down(self):
        """Yields the host's chunks, each when it has arrived."""
        arrivals = []
        for here, there in zip(self.here, self.there):
            here.copy_(there, non_blocking=self.ordered)
            arrivals.append(event_after(self.device))
        for here, arrival in zip(self.here, arrivals):
            if arrival is not None:
                arrival.synchronize()
            yield here

    def up(self, index):
        self.there[index].copy_(self.here[index], non_blocking=self.ordered)


class Descent:
    """Gradients in flight from a device, handed on in order as they arrive."""

    def __init__(self):
        self.queue = collections.deque()

    def send(self, here, there, what):
        here.copy_(there, non_blocking=there.device.type != "cpu")
        self.queue.append((event_after(there.device), what))

    def arrived(self, wait=False):
        """Yields those that have arrived; with wait, all of them."""
        while self.queue:
            event, what = self.queue[0]
            if event is not None and not event.query():
                if not wait:
                    return
                event.synchronize()
            self.queue.popleft()
            yield what
