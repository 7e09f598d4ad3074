"""Calls of the library that run, or have been started and are waited for later.

A Task is a call that is ready: its description (gw_call), the tensors that it uses, and a function that gives the
result when the library is done. Several tasks that are started together travel together where they can."""
import ctypes

from gradwire._library import CallTensor, GradwireError, check, lib, test
from gradwire.torch import joining


class Task:
    def __init__(self, job, doing, call, keep, result):
        self.job, self.doing, self.call, self.keep, self.result = job, doing, call, keep, result

    def run(self):
        """In the caller's own thread, which is faster."""
        joining.announce_call(self.job, self.call, self.doing)
        check(lib.gw_run(self.job.comm, ctypes.byref(self.call)), self.job.comm, self.doing)
        return self.result()

    def start(self):
        handle = Handle(self.job, self.doing, self.result, self.keep)
        joining.announce_call(self.job, self.call, self.doing)
        handle.start(self.call)
        return handle


class Together:
    """Tasks that travel together; the result is a tuple. A rank that has joined answers them one by one."""

    def __init__(self, job, doing, tasks):
        self.job, self.doing, self.tasks = job, doing, tasks

    def run(self):
        if self.job.uneven:
            return tuple(task.run() for task in self.tasks)
        for call in coalesced([task.call for task in self.tasks]):
            check(lib.gw_run(self.job.comm, ctypes.byref(call)), self.job.comm, self.doing)
        return self.result()

    def start(self):
        handle = Handle(self.job, self.doing, self.result, self.tasks)
        calls = [task.call for task in self.tasks]
        for call in calls if self.job.uneven else coalesced(calls):
            joining.announce_call(self.job, call, self.doing)
            handle.start(call)
        return handle

    def result(self):
        return tuple(task.result() for task in self.tasks)


def coalesced(calls):
    """Fewer calls for these, which differ in their tensors only: one for each type of elements. Calls with uneven
    parts are left as they are."""
    kinds = {}
    for call in calls:
        kinds.setdefault(id(call) if call.counts else call.dtype, []).append(call)
    for same in kinds.values():
        if len(same) > 1:
            tensors = (CallTensor * len(same))(*[(one.input, one.output, one.count) for one in same])
            same[0].tensors, same[0].tensor_count = tensors, len(same)
        yield same[0]


class Handle:
    """A call in progress. `parts` are pairs of a request and a completion function (or None); `keep` are the tensors in
    use; `finish` gives the result."""

    def __init__(self, job, doing, finish, keep=()):
        self.job, self.doing, self.finish, self.keep = job, doing, finish, keep
        self.comm, self.parts, self.result = job.comm, [], None

    def start(self, call, then=None):
        """The library copies the description. Where this fails, requests that have begun still use the tensors."""
        request = ctypes.c_void_p()
        check(lib.gw_start(self.job.comm, ctypes.byref(call), ctypes.byref(request)), self.job.comm, self.doing)
        self.parts.append((request, then))
        self.job.pending.add(self)

    def poll(self):
        """Whether synchronize would return at once."""
        self._still_there()
        while self.parts:
            done, status = test(self.parts[0][0])
            if not done:
                return False
            self._completed(status)
        return True

    def wait(self):
        self._still_there()
        while self.parts:
            self._completed(lib.gw_wait(self.parts[0][0]))
        self.job.pending.discard(self)
        if self.finish is not None:
            self.result, self.finish, self.keep = self.finish(), None, ()
        return self.result

    def _still_there(self):
        if self.parts and self.job.comm is None:
            raise GradwireError(f"{self.doing}: shutdown() came before synchronize()")

    def _completed(self, status):
        """Raises an error only when no request uses the tensors any more."""
        _, then = self.parts.pop(0)
        try:
            check(status, self.job.comm, self.doing)
        except GradwireError:
            while self.parts:
                lib.gw_wait(self.parts.pop(0)[0])
            self.job.pending.discard(self)
            raise
        if then is not None:
            then()


def poll(handle):
    """Whether the call is complete; never waits."""
    return handle.poll()


def synchronize(handle):
    """Waits for an asynchronous call and returns its result."""
    return handle.wait()
