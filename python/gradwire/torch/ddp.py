"""Communication hooks for DistributedDataParallel:

    model.register_comm_hook(None, gradwire.torch.ddp_hook)
    state = gradwire.torch.HookState("compress=topk", model.named_parameters())
    model.register_comm_hook(state, gradwire.torch.ddp_hook)

DDP hands over its buckets in the order in which they fill. Without a state each is averaged in place; a thread waits
for them, in that order, and completes the futures on which DDP waits. With a state, gradients travel by its strategy,
parameter by parameter: DDP may rebuild its buckets, but a codec's residual belongs to a parameter."""
import queue
import threading

import torch

from gradwire._library import GradwireError
from gradwire.torch import collectives, gradients, objects
from gradwire.torch.operations import Average
from gradwire.torch.reducer import Reducer
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
            except Exception as error:  # any error goes to the thread that waits for the future
                future.set_exception(error)


class HookState:
    """The strategy of ddp_hook, and its state from step to step. DDP waits for all buckets when the last one has
    filled, so this waits there too. The first step is sent as a whole at that point: before it, the parameters are not
    known."""

    def __init__(self, strategy, named_parameters):
        self.job, self.strategy = world(), strategy
        self.slots = {p: gradients.Slot(name, p, 0) for name, p in named_parameters}
        self.reducer, self.buffers = None, None
        self.filled = []  # (buffer, gradients, parameters, future) of this step's buckets
        self.job.hooks.append(self)

    def take(self, bucket):
        future = torch.futures.Future()
        self.filled.append((bucket.buffer(), bucket.gradients(), bucket.parameters(), future))
        if self.reducer is not None:
            self.send(*self.filled[-1])
        if bucket.is_last():
            self.complete()
        return future

    def send(self, buffer, parts, parameters, future):
        for part, parameter in zip(parts, parameters):
            slot = self.slots[parameter]
            slot.view.copy_(part)
            self.reducer.ready(slot.index)

    def complete(self):
        filled, self.filled = self.filled, []
        if self.reducer is None:
            self.commit([p for _, _, parameters, _ in filled for p in parameters])
            for one in filled:
                self.send(*one)
        self.reducer.end()
        self.reducer.flush()
        for buffer, parts, parameters, future in filled:
            for part, parameter in zip(parts, parameters):
                part.copy_(self.slots[parameter].view)
            future.set_result(buffer)
        if self.job.layers is not None:
            self.job.layers.end_step(self)

    def commit(self, parameters):
        # Collective. DDP's first buckets are filled from the end of the model.
        for parameter in parameters:
            if parameter not in self.slots:
                raise GradwireError(f"a parameter of shape {list(parameter.shape)} is not among named_parameters of "
                                    "HookState: give those of the model that DistributedDataParallel has")
        used = [self.slots[p] for p in reversed(parameters)]
        objects.agree([(s.name, s.parameter) for s in used], "ddp_hook")
        self.buffers = gradients.Buffers(self.job, used)
        for index, slot in enumerate(used):
            slot.index = index
        self.reducer = Reducer(self.job, gradients.entries(used, self.buffers.flag_tensor)[1:], self.strategy,
                         Average, 0, None)

    def drop(self):
        self.filled = []  # of an interrupted step: DDP has raised its error already

    def strategy_line(self):
        """The strategy, with tuned sizes."""
        return self.reducer.strategy()

    def step_number(self):
        """Number of the present training step, from 0."""
        return self.reducer.number() if self.reducer is not None else 0

    def close(self):
        if self.reducer is not None:
            self.reducer.close()
            self.buffers.free()
            self.reducer = self.buffers = None


def average(gradient: torch.Tensor) -> None:
    collectives.allreduce_(gradient, name="gradient")


if hasattr(torch.library, "custom_op"):  # torch 2.4: a graph may contain it
    average = torch.library.custom_op("gradwire::average_", average, mutates_args=("gradient",))


def ddp_hook(state, bucket):
    """Averages a bucket of DistributedDataParallel over all ranks; `state` is None or a HookState. With torch's
    python_reducer a bucket is a gradient and its parameter, inside of a graph of compiled autograd."""
    if isinstance(bucket, tuple):
        if state is not None:
            raise GradwireError('ddp_hook: with optimize_ddp="python_reducer" a HookState gets no buckets: register the '
                                "hook without a state, or let DistributedOptimizer use the strategy", "UNSUPPORTED")
        return average(bucket[0])
    if state is not None:
        return state.take(bucket)
    job = world()
    if not hasattr(job, "waiter"):
        job.waiter = Waiter()
    future = torch.futures.Future()
    handle = collectives.allreduce_async_(bucket.buffer(), name=f"bucket {bucket.index()}")
    job.waiter.calls.put((handle, future))
    if bucket.is_last():
        job.passes += 1
        if job.layers is not None:
            job.layers.end_step(job)
    return future
