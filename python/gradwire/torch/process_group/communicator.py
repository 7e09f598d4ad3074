"""A communicator of one process group: calls in order, their deadline, and what is under way."""
import ctypes
import os
import threading

from gradwire._library import STATUSES, Call, GradwireError, lib
from gradwire.torch.process_group import flight
from gradwire.torch.registered import Registered

PLAIN = bytes(Call("allreduce"))
FEW = 32  # works under way among which no completed ones are looked for
WORDS = {"TIMEOUT": "Timed out waiting", "PEER_LOST": "Connection closed by peer"}  # that torch's programs look for


def describe(collective, dtype=0, op=0, root=-1, input=None, output=None, count=0):
    """A gw_call. Copying a template takes a sixth of the time of filling a new one."""
    call = Call.from_buffer_copy(PLAIN)
    call.collective, call.dtype, call.op, call.root = collective, dtype, op, root
    call.input, call.output, call.count = input, output, count
    return call


class Communicator:
    """`lock` orders the calls of several threads. `pending` keeps works, and with them the memory that their requests
    use, until these are complete, whether or not anybody else still refers to them."""

    def __init__(self, comm, deadline, parent=None):
        self.comm, self.deadline = comm, deadline
        self.registered = parent.registered if parent else Registered(comm)  # one for all communicators of a job
        self.registered.communicators.add(self)
        self.first = parent is None
        self.rank, self.size = lib.gw_rank(comm), lib.gw_size(comm)
        self.lock, self.pid = threading.Lock(), os.getpid()
        self.pending, self.many = set(), FEW
        self.number, self.messages = 0, 0  # how many collectives and messages there were

    def count(self, messages):
        if messages:
            self.messages += 1
        else:
            self.number += 1

    def run(self, calls, doing):
        """Blocks until the calls are complete."""
        self.check_process(doing)
        with self.lock:
            comm = self.living(doing)
            for call in calls:
                call.deadline_s = call.deadline_s or self.deadline
                status = lib.gw_run(comm, call)
                if status:
                    raise self.error(status, doing)

    def start(self, calls, work):
        """Starts the calls; their requests are the work's, whose turn is held, so that nobody takes the first ones for
        all. If one cannot start, those before it go on."""
        self.check_process(work.doing)
        if len(self.pending) >= self.many:
            self.prune()
        with self.lock, work.turn:
            comm = self.living(work.doing)
            for call in calls:
                call.deadline_s = call.deadline_s or self.deadline
                request = ctypes.c_void_p()
                status = lib.gw_start(comm, call, ctypes.byref(request))
                if status:
                    raise self.error(status, work.doing)
                self.pending.add(work)
                work.requests.append(request)

    def prune(self):
        """Lets go of works that nobody waits for. Each is looked at a few times only, however many there are."""
        for work in list(self.pending):
            work.is_completed()
        self.many = max(2 * len(self.pending), FEW)

    def living(self, doing):
        if self.comm is None:
            raise GradwireError(f"gradwire: {doing}: the process group was destroyed; make a new one", "INVALID")
        return self.comm

    def check_process(self, doing):
        """A forked child has a copy of this object, but is no rank, and the lock is in an unknown state."""
        if os.getpid() != self.pid:
            raise GradwireError(f"gradwire: {doing}: this process was forked from rank {self.rank} (process "
                                f"{self.pid}), which alone can use the process group: a forked child may compute, but "
                                "not communicate", "INVALID")

    def error(self, status, doing):
        name = STATUSES[status]
        sentence = lib.gw_last_error(self.comm).decode(errors="replace")
        word = f"{WORDS[name]}: " if name in WORDS else ""
        if flight.recorder is not None and lib.gw_async_error(self.comm):
            flight.recorder.failed()
        return GradwireError(f"gradwire: {doing}: {word}{sentence}", name)

    def status(self):
        """The name of the status with which the communicator has failed, or "OK". Never blocks."""
        return STATUSES[lib.gw_async_error(self.comm)] if self.comm is not None else "OK"

    def abort(self, reason):
        if self.comm is not None and os.getpid() == self.pid:
            lib.gw_abort(self.comm, reason.encode(errors="replace"))

    def split(self, colour, key):
        """A communicator of the ranks with this colour, or None where it is negative. Collective."""
        out = ctypes.c_void_p()
        self.check_process("split_group")
        with self.lock:
            status = lib.gw_comm_split(self.living("split_group"), colour, key, ctypes.byref(out))
            if status:
                raise self.error(status, "split_group")
        return Communicator(out, self.deadline, self) if out.value else None

    def close(self):
        """Completes what is under way and leaves the job."""
        if self.comm is None or os.getpid() != self.pid:
            return
        for work in list(self.pending):
            work.complete()
        with self.lock:
            comm, self.comm = self.comm, None
        if self.first:
            self.registered.end()
        if comm is not None:
            lib.gw_finalize(comm)
