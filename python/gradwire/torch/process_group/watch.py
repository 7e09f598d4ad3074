"""Calls as torch's tools see them: a range of the profiler with the name "gradwire:all_reduce", from the call until its
caller has waited for it, and an entry of the flight recorder."""
import contextlib
import threading

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
        work.range = Range(record)


class Range:
    """Of a call under way. It ends in the thread that began it: torch crashes now and then if another thread ends a
    range while the profiler stops."""

    def __init__(self, record):
        self.record, self.thread = record, threading.get_ident()

    def end(self):
        if self.record is not None and self.thread == threading.get_ident():
            self.record, record = None, self.record
            record.__exit__(None, None, None)
