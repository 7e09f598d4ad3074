"""The job of this process: joining and leaving it, ranks and sizes, and errors as exceptions.

An uncaught exception ends all ranks: gw_abort sends them its last line, and the rank itself prints its traceback as
always."""
import atexit
import ctypes
import gc
import os
import sys
import traceback
import weakref

from gradwire._library import GradwireError, Options, check, gw_init, lib
from gradwire.torch import interrupts, timeline
from gradwire.torch.errors import ArgumentError

KNOWN_TO_ALL = ("PEER_LOST", "TIMEOUT", "MISMATCH", "PROTOCOL", "ABORTED")  # errors that all ranks get
FOLLOWED = 122  # exit code of a rank whose error is another rank's (GW_JOB_FOLLOWED): that one is blamed
REASON_BYTES = 400  # of a sentence's 512 bytes, for the reason


class World:
    """One communicator and the objects that use it. `pending` keeps the tensors of unfinished calls alive; `optimizers`
    are weak references, in the order of creation; `orphans` are the reducers and buffers of deleted optimisers, by
    their numbers; `hooks` are states of ddp_hook; `passes` are the backward passes of a ddp_hook without a state;
    `coded` are the open coded collectives, in the order of creation; `layers` reports steps and layers to a recording;
    `former` are failed communicators whose memory or requests are still in use; `sets` are the process sets of the job,
    each of which has a World of its own; `newest` is the rank that had the newest state when the job was last put
    together."""

    def __init__(self, comm, uneven=False, strategy=None):
        self.uneven, self.strategy, self.pending = uneven, strategy, set()
        self.pid = os.getpid()
        self.optimizers, self.orphans, self.hooks, self.former, self.sets = [], {}, [], [], []
        self.coded = []
        self.layers, self.newest, self.passes = None, 0, 0
        self.enter(comm)

    def enter(self, comm):
        """Calls use this communicator from now on."""
        self.comm, self._cross = comm, None
        self.rank, self.size = lib.gw_rank(comm), lib.gw_size(comm)
        self.local_rank, self.local_size = lib.gw_local_rank(comm), lib.gw_local_size(comm)

    def change(self, call):
        """Enters the communicator that gw_shrink or gw_regroup makes from the failed one. Ranks change; process sets and
        coded collectives end."""
        self.end_sets()
        self.close_coded()
        comm = ctypes.c_void_p()
        check(call(self.comm, ctypes.byref(comm)))
        self.former.append(self.comm)
        self.enter(comm)

    def split(self, colour):
        """A communicator of the ranks with this colour; NULL where it is negative. Collective."""
        comm = ctypes.c_void_p()
        check(lib.gw_comm_split(self.comm, colour, self.rank, ctypes.byref(comm)), self.comm)
        return comm

    def end_sets(self):
        for one in self.sets:
            one.end()
        self.sets = []

    def close_coded(self):
        for one in list(self.coded):
            one.close()

    def furthest(self, *progress):
        """The first of the ranks whose progress is the largest. Collective."""
        words, n = self.gather(*progress), len(progress)
        return max(range(self.size), key=lambda r: (words[r * n:r * n + n], -r))

    def release(self):
        """Finalises former communicators that are no longer in use."""
        users = [one._buffers for one in self.living()] + [hook.buffers for hook in self.hooks] + list(self.pending)
        needed = {user.comm.value for user in users if user is not None}
        for comm in [c for c in self.former if c.value not in needed]:
            self.former.remove(comm)
            lib.gw_finalize(comm)

    def abort(self, reason):
        lib.gw_abort(self.comm, reason.encode(errors="replace"))

    def forked(self):
        """Whether this is a forked child of the process that joined (a DataLoader worker, for example): it is no rank,
        and its end does not concern the others."""
        return self.pid != os.getpid()

    def shutdown(self):
        if self.comm is not None and not self.forked():
            self.end_sets()
            self.close_coded()
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
        """The optimisers that still exist."""
        return [o() for o in self.optimizers if o() is not None]

    def step_number(self):
        """Number of the present training step of a ddp_hook without a state."""
        return self.passes

    def strategy_line(self):
        """None: that of the communicator."""

    def close_orphans(self):
        """Servers end when all ranks have closed a reducer. What is garbage here is garbage on every rank, and all
        close it in the same order."""
        gc.collect()
        for number in sorted(self.orphans):
            reducer, buffers = self.orphans.pop(number)
            reducer.close()
            buffers.free()

    def cross(self):
        """Index among the ranks that have the same local rank on their hosts, the number of these, and whether all
        hosts have the same number of ranks."""
        if self._cross is None:
            locals_ = self.gather(self.local_rank)
            same = [r for r, local in enumerate(locals_) if local == self.local_rank]
            even = len({locals_.count(local) for local in locals_}) == 1
            self._cross = same.index(self.rank), len(same), even
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
_hooked = 0  # the process whose excepthook and atexit are set


def init(strategy=None, join=False, rank=-1, size=-1, master_addr=None, master_port=-1, deadline=0):
    """Joins the job; returns when all ranks have. Defaults come from the environment that gradwire run, torchrun,
    mpirun or srun set. `join` lets ranks run out of data at different times, see join(). Joining twice is fine. Returns
    the rank that has the newest state: 0, unless this process was restarted (regroup())."""
    global _world
    if _world is not None and not _world.forked():
        return 0
    options = Options(strategy=encoded(strategy), rank=rank, world=size, master_addr=encoded(master_addr),
                      master_port=master_port, deadline_s=deadline)
    _world = World(open_comm(options), join, strategy)
    _world.newest = first_join(_world)
    watch(_world)
    timeline.watch(_world)
    return _world.newest


def first_join(job):
    """For a process that has no state yet. In a later generation than the first the other ranks are in regroup()
    (recovery.py), and this one makes the same collective calls. Ranks may be lost meanwhile."""
    while True:
        try:
            newest = join_regroup(job) if lib.gw_generation(job.comm) else 0
            job.cross()
            return newest
        except GradwireError as error:
            if not error.lost or not os.environ.get("GRADWIRE_ROSTER"):
                raise
            job.change(lib.gw_regroup)
            job.release()


def join_regroup(job):
    job.gather(1)
    job.split(-1)
    return job.furthest(-1, -1)


def encoded(text):
    return None if text is None else text.encode()


def open_comm(options):
    comm = ctypes.c_void_p()
    check(gw_init(comm, options))
    return comm


def shutdown():
    """Leaves the job. Without it that happens at exit."""
    global _world
    if _world is not None:
        left, _world = _world, None
        left.shutdown()


def start_timeline(file_path=None, mark_cycles=False, capture=None):
    """Records what happens from now on to `file_path`, a file for Perfetto, and to `capture`, one for `gradwire trace`;
    either may be left out. All ranks call it. GRADWIRE_TIMELINE and GRADWIRE_CAPTURE do the same from init() on.
    Horovod's `mark_cycles` is ignored: there are no cycles."""
    timeline.start(world(), file_path, capture)


def stop_timeline():
    """Ends the recording of this rank and completes its files."""
    timeline.stop(world())


def is_initialized():
    """Whether init() has been called, and shutdown() not since."""
    return _world is not None


def world():
    if _world is None:
        raise ArgumentError("gradwire.torch.init() has to be called first")
    return _world


def rank():
    """The number of this process in the job, from 0 on."""
    return world().rank


def size():
    """How many ranks the job has."""
    return world().size


def local_rank():
    """The number of this process among those of its host."""
    return world().local_rank


def local_size():
    """How many ranks this host has."""
    return world().local_size


def cross_rank():
    """The number of this process's host, where all hosts have the same number of ranks."""
    return world().cross()[0]


def cross_size():
    """How many hosts the job has, where all have the same number of ranks."""
    return world().cross()[1]


def is_homogeneous():
    """Whether all hosts have the same number of ranks."""
    return world().cross()[2]


def last_line(kind, value, trace):
    """"ValueError: no such label (train.py:41)"."""
    line = traceback.format_exception_only(kind, value)[-1].strip().split("\n")[0]
    frames = traceback.extract_tb(trace)
    where = f" ({frames[-1].filename.rsplit('/', 1)[-1]}:{frames[-1].lineno})" if frames else ""
    return line[:REASON_BYTES - len(where)] + where


def watch(group):
    """Ends this group when the process ends, normally or by an exception."""
    _watched.add(group)
    hook_exceptions()


def hook_exceptions():
    global _hooked
    if _hooked == os.getpid():
        return
    _hooked, before, mine = os.getpid(), sys.excepthook, os.getpid()

    def ended(kind, value, trace):
        status = getattr(value, "status", "")
        if os.getpid() == mine and status not in KNOWN_TO_ALL:
            abort_all(last_line(kind, value, trace))
        interrupted = interrupts.happened() and (kind is KeyboardInterrupt or status == "ABORTED")
        if os.getpid() == mine and interrupted and launched():
            interrupts.end()  # the launcher says it once
        if status == "ABORTED":
            print(f"gradwire: {value}", file=sys.stderr)  # the traceback that matters is another rank's
        else:
            before(kind, value, trace)
        if os.getpid() == mine and status in ("ABORTED", "PEER_LOST"):
            sys.exit(FOLLOWED)

    sys.excepthook = ended
    atexit.register(leave_all, mine)
    interrupts.watch(abort_all)


def abort_all(reason):
    for group in list(_watched):
        group.abort(reason)


def launched():
    """Whether `gradwire run` has started this process."""
    return "GRADWIRE_MASTER_PORT" in os.environ


def leave_all(mine):
    """Leaves at the end of the process that joined; forked children inherit this atexit call, too."""
    if os.getpid() == mine:
        for group in list(_watched):
            group.shutdown()
