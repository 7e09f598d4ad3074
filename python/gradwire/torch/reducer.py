"""gw_reducer: the tensors of a model, named once; in every step their gradients travel by the strategy."""
import ctypes
import os
import warnings

import torch

from gradwire._library import (RATE_FUNCTION, UPDATE_FUNCTION, GradwireError, ReducerOptions, ReducerTensor, check,
                               lib, read_counters)
from gradwire.torch.tensors import DTYPES

IGNORED, COUNTED, REFUSED = range(3)  # gw_nonfinite
UNSAID, OFFERED, KEPT = range(3)  # gw_momentum

gw_reducer_ready, gw_reducer_wait = lib.gw_reducer_ready, lib.gw_reducer_wait  # called for every tensor of every step


def memory(address, count, dtype):
    """A flat tensor over memory that torch does not own."""
    size = torch.empty(0, dtype=dtype).element_size()
    if not count:
        return torch.empty(0, dtype=dtype)
    return torch.frombuffer((ctypes.c_char * (count * size)).from_address(address), dtype=dtype)


def technique_of(axis, strategy, job):
    """The technique that an optimiser's strategy, or else that of the job, names for an axis. Only a hint: the reducer
    that will know it is not committed yet."""
    for line in (strategy, job.strategy, os.environ.get("GRADWIRE_STRATEGY"), strategy_file()):
        for word in (line or "").split():
            if word.startswith(f"{axis}="):
                return word[len(axis) + 1:].split(":")[0]
    return ""


def strategy_file():
    try:
        with open(os.environ["GRADWIRE_STRATEGY_FILE"], encoding="utf-8") as lines:
            return " ".join(line.split("#")[0] for line in lines)
    except (KeyError, OSError):
        return None


class Reducer:
    """A committed gw_reducer over `entries`: (name, gradient, weights or None, rows, exact, batch), in forward order.
    Where the strategy runs the optimiser inside the reducer, it calls `update` with a ReducerUpdate. The first try
    leaves it out, because most strategies leave the optimiser to the caller. `updates`: the reducer runs it; then the
    first entry, the flags, is left out. With update None such strategies are refused.
    nonfinite: as gw_nonfinite, where the optimiser is the caller's and where the reducer runs it. after: for names of
    entries, the names of those before it on whose operations in the forward pass it builds; else the one before it.
    rate: gives the learning rate of a step; None: it is constant. momentum: its use and value
    in the optimiser, as in gw_reducer_options. whole: `update` needs whole parameters. optimizer: its name, "sgd",
    "adamw", as in gw_reducer_options; None: not known."""

    def __init__(self, job, entries, strategy, op, first_step, update, nonfinite=(IGNORED, IGNORED), after=None,
                 rate=None, momentum=(UNSAID, 0), whole=False, optimizer=None):
        self.after, self.momentum, self.whole = after or {}, momentum, whole
        self.optimizer = optimizer
        self.job, self.first_step, self.steps = job, first_step, 0
        self.handle, self.updates = ctypes.c_void_p(), False
        self.callback = UPDATE_FUNCTION(lambda context, update_at: update(update_at.contents))
        self.rate = RATE_FUNCTION(lambda context, step: rate(step)) if rate is not None else RATE_FUNCTION()
        try:
            self.commit(entries, strategy, op, UPDATE_FUNCTION(), nonfinite[0])
        except GradwireError as error:
            if error.status != "UNSUPPORTED" or update is None:
                raise
            for name, _, weights, *_ in entries[1:]:
                if weights is None:
                    raise GradwireError(f'{error}; and that is possible only in host memory, where parameter "{name}" '
                                        "is not", "UNSUPPORTED") from None
            self.commit(entries[1:], strategy, op, self.callback, nonfinite[1])
            self.updates = True
        self.warn_uncompressed(entries)

    def warn_uncompressed(self, entries):
        """Codecs compress f32 only. Where a codec makes two bytes of an element, half precision loses nothing."""
        codec = self.axis("compress")
        halves = (torch.float16, torch.bfloat16) if codec in ("fp16", "bf16") else ()
        dense = [(name, gradient.dtype) for name, gradient, _, _, exact, _ in entries
                 if not exact and gradient.dtype not in (torch.float32, *halves)]
        if dense and codec != "none":
            warnings.warn(f'compress={codec} compresses gradients of type torch.float32. Those of {len(dense)} parameters '
                          f'have other types and travel uncompressed; the first is "{dense[0][0]}", of {dense[0][1]}')

    def commit(self, entries, strategy, op, update, nonfinite):
        tensors = (ReducerTensor * len(entries))()
        places = {entry[0]: place for place, entry in enumerate(entries)}
        for tensor, (name, gradient, weights, rows, exact, batch) in zip(tensors, entries):
            tensor.name, tensor.count, tensor.dtype = name.encode(), gradient.numel(), DTYPES[gradient.dtype]
            tensor.gradient, tensor.rows, tensor.exact = gradient.data_ptr(), rows, exact
            tensor.weights, tensor.batch = weights.data_ptr() if update else None, batch
            if name in self.after:
                builds_on = [places[other] for other in self.after[name]]
                tensor.after, tensor.after_count = (ctypes.c_int * (len(builds_on) + 1))(*builds_on), len(builds_on)
        options = ReducerOptions(strategy=None if strategy is None else strategy.encode(), op=op,
                                 first_step=self.first_step, update=update, nonfinite=nonfinite, rate=self.rate,
                                 momentum_use=self.momentum[0], momentum=self.momentum[1], whole_tensors=self.whole,
                                 optimizer=self.optimizer.encode() if self.optimizer else None)
        check(lib.gw_reducer_commit_sized(ctypes.byref(self.handle), self.job.comm, tensors,
                                          ctypes.sizeof(ReducerTensor), len(entries), ctypes.byref(options)),
              self.job.comm)

    def ready(self, tensor):
        status = gw_reducer_ready(self.handle, tensor)
        if status:
            check(status, self.job.comm)

    def absent(self, tensor):
        check(lib.gw_reducer_absent(self.handle, tensor), self.job.comm)

    def wants_factors(self, tensor):
        return lib.gw_reducer_wants_factors(self.handle, tensor)

    def takes_momentum(self, tensor):
        """The momentum that a codec applies to its gradients; 0: none."""
        return lib.gw_reducer_takes_momentum(self.handle, tensor)

    def ready_factors(self, tensor, left, right):
        check(lib.gw_reducer_ready_factors(self.handle, tensor, left.data_ptr(), right.data_ptr(), len(left)),
              self.job.comm)

    def wait(self, tensor):
        status = gw_reducer_wait(self.handle, tensor)
        if status:
            check(status, self.job.comm)

    def end(self):
        check(lib.gw_reducer_end(self.handle), self.job.comm)
        self.steps += 1

    def number(self):
        """Number of the present step."""
        return self.first_step + self.steps

    def flush(self):
        check(lib.gw_reducer_flush(self.handle), self.job.comm)

    def move(self):
        """Moves to the communicator that the job has entered after a loss. Collective."""
        check(lib.gw_reducer_resume(self.handle, self.job.comm))
        self.first_step, self.steps = read_counters(self.handle).step, 0

    def strategy(self):
        """The current line, in bytes."""
        line = ctypes.create_string_buffer(1000)
        lib.gw_reducer_strategy(self.handle, line, len(line))
        return line.value

    def axis(self, name):
        """The technique of an axis of the strategy, without its settings."""
        words = (word.split("=", 1) for word in self.strategy().decode().split())
        return next((technique.split(":")[0] for axis, technique in words if axis == name), "")

    def is_tuning(self):
        return bool(read_counters(self.handle).tuning)

    def may_compress(self):
        """Whether a codec may take part, now or as strategy=auto chooses."""
        return self.axis("compress") != "none" or self.axis("accuracy") == "safe"

    def routes(self):
        """The way that buckets really take, a line for each route with its hops."""
        text = ctypes.create_string_buffer(4000)
        lib.gw_reducer_routes(self.handle, text, len(text))
        return text.value.decode()

    def has_servers(self):
        return self.axis("arch") == "ps"

    def has_own_optimizers(self):
        """Whether the optimisers of the ranks differ, as with sync=periodic."""
        return read_counters(self.handle).local_optimisers

    def close(self):
        lib.gw_reducer_close(self.handle)
        self.handle = None

    def save(self):
        """The state between steps, as bytes in a tensor."""
        state = torch.empty(lib.gw_reducer_state_bytes(self.handle), dtype=torch.uint8)
        check(lib.gw_reducer_state_save(self.handle, state.data_ptr()), self.job.comm)
        return state

    def restore(self, state):
        state = state.cpu()
        check(lib.gw_reducer_state_restore(self.handle, state.data_ptr(), state.numel()), self.job.comm)
