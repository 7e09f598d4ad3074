"""The job this process belongs to: joining and leaving it, who is where, and bad news by exception.

An exception that nobody catches ends all ranks: its last line reaches them through gw_abort, and the rank itself prints
its traceback as always."""
import atexit
import ctypes
import gc
import os
import sys
import traceback
import weakref

from gradwire._library import GradwireError, Options, check, lib
from gradwire.torch import timeline

NEWS = ("PEER_LOST", "TIMEOUT", "MISMATCH", "PROTOCOL", "ABORTED")  # errors of which all ranks know
REASON_BYTES = 400  # what of a sentence's 512 bytes is left for the reason


class World:
    """One communicator and what hangs on it. `pending` keeps the tensors of unfinished calls alive; `optimizers` are
    weak references, in the order in which they were made; `orphans` are the steps and buffers of those that nobody has
    any more, by their numbers; `hooks` are states of ddp_hook; `layers` tells a recording of the models' layers;
    `former` are failed communicators whose memory or requests are still in use."""

    def __init__(self, comm, uneven=False, strategy=None):
        self.uneven, self.strategy, self.pending = uneven, strategy, set()
        self.pid = os.getpid()
        self.optimizers, self.orphans, self.hooks, self.former = [], {}, [], []
        self.layers = None
        self.enter(comm)

    def enter(self, comm):
        """Calls use this communicator from now on."""
        self.comm, self._cross = comm, None
        self.rank, self.size = lib.gw_rank(comm), lib.gw_size(comm)
        self.local_rank, self.local_size = lib.gw_local_rank(comm), lib.gw_local_size(comm)

    def change(self, call):
        """Enters what gw_shrink or gw_regroup makes of the failed communicator."""
        comm = ctypes.c_void_p()
        check(call(self.comm, ctypes.byref(comm)))
        self.former.append(self.comm)
        self.enter(comm)

    def split(self, colour):
        """A communicator of the ranks with this colour; NULL where it is negative. Collective."""
        comm = ctypes.c_void_p()
        check(lib.gw_comm_split(self.comm, colour, self.rank, ctypes.byref(comm)), self.comm)
        return comm

    def furthest(self, *progress):
        """The first of the ranks whose progress is the largest. Collective."""
        words, n = self.gather(*progress), len(progress)
        return max(range(self.size), key=lambda r: (words[r * n:r * n + n], -r))

    def release(self):
        """Finalises former communicators that nothing needs any more."""
        users = [one._buffers for one in self.living()] + [hook.buffers for hook in self.hooks] + list(self.pending)
        needed = {user.comm.value for user in users if user is not None}
        for comm in [c for c in self.former if c.value not in needed]:
            self.former.remove(comm)
            lib.gw_finalize(comm)

    def abort(self, reason):
        lib.gw_abort(self.comm, reason.encode(errors="replace"))

    def forked(self):
        """Whether this is a child of the process that joined (a worker of a DataLoader, say): it has no part in the
        job, and its end means nothing to the others."""
        return self.pid != os.getpid()

    def shutdown(self):
        if self.comm is not None and not self.forked():
            self.close_orphans()
            for optimizer in self.living():
                optimizer.detach()
            for hook in self.hooks:
                hook.close()
            timeline.unwatch(self)
            comm, self.comm = self.comm, None
            lib.gw_finalize(comm)  # waits for what has been started
            self.pending.clear()
            self.release()

    def living(self):
        """The optimisers that are still there."""
        return [o() for o in self.optimizers if o() is not None]

    def step_number(self):
        """Of the training step that is under way."""
        return next((one.step_number() for one in self.living() + self.hooks), 0)

    def close_orphans(self):
        """Servers end when all ranks have closed a step: whatever is garbage here is so on every rank, and they close
        it in the same order."""
        gc.collect()
        for number in sorted(self.orphans):
            step, buffers = self.orphans.pop(number)
            step.close()
            buffers.free()

    def cross(self):
        """Place among the ranks that have the same local rank on their hosts, and how many these are."""
        if self._cross is None:
            same = [r for r, local in enumerate(self.gather(self.local_rank)) if local == self.local_rank]
            self._cross = same.index(self.rank), len(same)
        return self._cross

    def gather(self, *numbers):
        """Integers of every rank, flat, in rank order."""
        mine = (ctypes.c_int64 * len(numbers))(*numbers)
        all_of_them = (ctypes.c_int64 * (len(numbers) * self.size))()
        check(lib.gw_allgather(self.comm, mine, all_of_them, len(numbers), I64), self.comm)
        return list(all_of_them)


I64 = 7  # GW_I64
_world = None
_watched = weakref.WeakSet()  # everything that has abort(reason) and shutdown()
_hooked = 0  # the process whose exceptions and whose end are heard of


def init(strategy=None, join=False, rank=-1, size=-1, master_addr=None, master_port=-1, deadline=0):
    """Joins the job; returns when all ranks have. Whatever is not given comes from the environment that gradwire run,
    torchrun, mpirun or srun have set. `join` lets ranks run out of data at different times, see join(). Joining twice
    is fine. Returns the rank that has the newest state: 0, unless this process was started again (regroup())."""
    global _world
    if _world is not None and not _world.forked():
        return 0
    options = Options(strategy=encoded(strategy), rank=rank, world=size, master_addr=encoded(master_addr),
                      master_port=master_port, deadline_s=deadline)
    _world = World(open_comm(options), join, strategy)
    newest = first_meeting(_world)
    watch(_world)
    timeline.watch(_world)
    return newest


def first_meeting(home):
    """Of a process that has no state yet. In a later round than the first it meets ranks that come from regroup()
    (recovery.py), and makes the same collective calls. Others may be lost meanwhile."""
    while True:
        try:
            newest = meet_again(home) if lib.gw_round(home.comm) else 0
            home.cross()
            return newest
        except GradwireError as error:
            if not error.lost or not os.environ.get("GRADWIRE_ROLL"):
                raise
            home.change(lib.gw_regroup)
            home.release()


def meet_again(home):
    home.gather(1)
    home.split(-1)
    return home.furthest(-1, -1)


def encoded(text):
    return None if text is None else text.encode()


def open_comm(options):
    comm = ctypes.c_void_p()
    check(lib.gw_init(ctypes.byref(comm), ctypes.byref(options)))
    return comm


def shutdown():
    """Leaves the job. Without it that happens at exit."""
    global _world
    if _world is not None:
        left, _world = _world, None
        left.shutdown()


def start_timeline(path=None, capture=None):
    """Records what happens from now on to `path`, a file for Perfetto, and to `capture`, one for `gradwire trace`;
    either may be left out. All ranks call it. GRADWIRE_TIMELINE and GRADWIRE_CAPTURE do the same from init() on."""
    timeline.start(world(), path, capture)


def stop_timeline():
    """Ends the recording of this rank, whose files are complete then."""
    timeline.stop(world())


def is_initialized():
    return _world is not None


def world():
    if _world is None:
        raise GradwireError("gradwire.torch.init() has to be called first")
    return _world


def rank():
    return world().rank


def size():
    return world().size


def local_rank():
    return world().local_rank


def local_size():
    return world().local_size


def cross_rank():
    """Of this process's host, where all hosts have as many ranks."""
    return world().cross()[0]


def cross_size():
    return world().cross()[1]


def last_line(kind, value, trace):
    """"ValueError: no such label (train.py:41)"."""
    line = traceback.format_exception_only(kind, value)[-1].strip().split("\n")[0]
    frames = traceback.extract_tb(trace)
    where = f" ({frames[-1].filename.rsplit('/', 1)[-1]}:{frames[-1].lineno})" if frames else ""
    return line[:REASON_BYTES - len(where)] + where


def watch(group):
    """Ends this group too when the process ends, in whatever way."""
    _watched.add(group)
    hook_exceptions()


def hook_exceptions():
    global _hooked
    if _hooked == os.getpid():
        return
    _hooked, before, mine = os.getpid(), sys.excepthook, os.getpid()

    def ended(kind, value, trace):
        if os.getpid() == mine and getattr(value, "status", "") not in NEWS:
            for group in list(_watched):
                group.abort(last_line(kind, value, trace))
        if isinstance(value, GradwireError) and value.status == "ABORTED":
            print(f"gradwire: {value}", file=sys.stderr)  # the traceback that matters is another rank's
        else:
            before(kind, value, trace)

    sys.excepthook = ended
    atexit.register(leave_all, mine)


def leave_all(mine):
    """At the end of the process that joined; forked children have this call in their lists too."""
    if os.getpid() == mine:
        for group in list(_watched):
            group.shutdown()
