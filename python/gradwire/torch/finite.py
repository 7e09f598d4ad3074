"""Gradients that are not finite. The reducer looks for them when they are handed over, before any sum hides whose they
are. The optimiser asks in step(), because a GradScaler makes infinities on purpose: it then leaves step() out."""
import warnings

from gradwire._library import GradwireError, read_counters
from gradwire.torch.reducer import COUNTED, IGNORED, REFUSED

# For Reducer. Where it runs the optimiser, step() would be too late, and no GradScaler can be used.
ACTIONS = {"raise": (COUNTED, REFUSED), "warn": (COUNTED, COUNTED), "ignore": (IGNORED, IGNORED)}


def check(optimizer):
    """In step(), when the gradients have been handed over."""
    if optimizer._nonfinite == "ignore":
        return
    counters = read_counters(optimizer._reducer.handle)
    if not counters.nonfinite or counters.nonfinite_step != optimizer._reducer.number() - 1:
        return
    name = next(s.name for s in optimizer._slots if s.index == counters.nonfinite_tensor)
    sentence = (f'rank {optimizer._job.rank}: the gradient of parameter "{name}" is not finite in step '
                f"{counters.nonfinite_step}")
    if optimizer._nonfinite == "raise":
        optimizer._reducer.flush()  # a caller that catches it may make the next step
        raise GradwireError(f'{sentence}; DistributedOptimizer(nonfinite="ignore") goes on', "NOT_FINITE")
    warnings.warn(sentence)
