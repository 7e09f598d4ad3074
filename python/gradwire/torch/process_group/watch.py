"""Calls as torch's tools see them: a range of the profiler with the name "gradwire:all_reduce", from the call to its
end, and an entry of the flight recorder."""
import contextlib

import torch

from gradwire.torch.process_group import flight

profiling = torch._C._autograd._profiler_enabled if hasattr(torch._C, "_autograd") else lambda: False
QUIET = contextlib.nullcontext()


def call(group, work):
    if flight.recorder is not None:
        flight.recorder.begin(group, work)
    return recorded(work) if profiling() else QUIET


@contextlib.contextmanager
def recorded(work):
    record = torch.profiler.record_function(f"gradwire:{work.doing}")
    record.__enter__()
    try:
        yield
    except BaseException:
        record.__exit__(None, None, None)
        raise
    if work.done:
        record.__exit__(None, None, None)
    else:
        record._call_end_callbacks_on_future(work.get_future())
