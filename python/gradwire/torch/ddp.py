"""For those who stay with DistributedDataParallel:

    model.register_comm_hook(None, gradwire.torch.ddp_hook)

DDP hands over its buckets in the order in which they fill; each is averaged where it lies. A thread waits for them, in
that order, and completes the futures on which DDP waits."""
import queue
import threading

import torch

from gradwire.torch import collectives
from gradwire.torch.world import world


class Waiter:
    """Completes futures in the order of their calls. One thread, which ends with the process."""

    def __init__(self):
        self.calls = queue.SimpleQueue()
        threading.Thread(target=self.run, name="gradwire ddp", daemon=True).start()

    def run(self):
        while True:
            handle, future = self.calls.get()
            try:
                future.set_result(handle.wait())
            except Exception as error:  # whatever it is, it belongs to whoever waits for the future
                future.set_exception(error)


def ddp_hook(state, bucket):
    """Averages a bucket of DistributedDataParallel over all ranks; `state` is not used."""
    home = world()
    if not hasattr(home, "waiter"):
        home.waiter = Waiter()
    future = torch.futures.Future()
    handle = collectives.allreduce_async_(bucket.buffer(), f"bucket {bucket.index()}", collectives.Average)
    home.waiter.calls.put((handle, future))
    return future
