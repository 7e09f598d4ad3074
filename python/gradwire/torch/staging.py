"""Tensors on an accelerator go through pinned host buffers, piece by piece: while one piece is on the network the next
one comes down from the device, and the one before goes back up. Copies are torch's own, in the order of the current
stream. GRADWIRE_STAGE=always takes tensors in host memory the same way, to test it."""
import collections
import os

import torch

PIECE_BYTES = 4 << 20


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
    """The host's copy of a dense tensor, cut into pieces."""

    def __init__(self, tensor):
        self.device = tensor.device
        self.there = tensor.view(-1).split(max(PIECE_BYTES // tensor.element_size(), 1))
        self.ordered = event_after(self.device) is not None
        self.here = torch.empty(tensor.numel(), dtype=tensor.dtype, pin_memory=self.ordered)
        self.here = self.here.split(max(PIECE_BYTES // tensor.element_size(), 1))

    def down(self):
        """The host's pieces, each when it has arrived."""
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
    """Gradients on their way down from a device, handed on in their order when they have arrived."""

    def __init__(self):
        self.queue = collections.deque()

    def send(self, here, there, what):
        here.copy_(there, non_blocking=there.device.type != "cpu")
        self.queue.append((event_after(there.device), what))

    def arrived(self, wait=False):
        """Those that have; all of them with wait."""
        while self.queue:
            event, what = self.queue[0]
            if event is not None and not event.query():
                if not wait:
                    return
                event.synchronize()
            self.queue.popleft()
            yield what
