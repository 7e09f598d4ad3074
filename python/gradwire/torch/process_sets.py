"""Process sets: subsets of the ranks for which a collective or an optimiser runs, each with a communicator of its own.

Ranks outside of a set get communicators of one rank each, so that an optimiser of the set updates there with their own
gradients, as in Horovod. A set ends when it is removed, at shutdown() and when a rank is lost: after that ranks have
other numbers."""
import zlib

from gradwire.torch import joining, world as worlds
from gradwire.torch.errors import ArgumentError
from gradwire.torch.world import World, world


class ProcessSet:
    """Give it to init(process_sets=...) or add_process_set(), then to calls as process_set=. `ranks` are those of the
    job, in order; `job` is the World of this rank, from then on until the set ends."""

    process_set_id, job = None, None

    def __init__(self, ranks):
        self.ranks = checked_ranks(ranks)

    def begin(self, parent):
        """Collective on all ranks of the job."""
        ranks = parent.gather(len(self.ranks), zlib.crc32(repr(self.ranks).encode()))
        if ranks != ranks[:2] * parent.size:
            raise ArgumentError(f"add_process_set: ranks give different process sets; rank {parent.rank} {self.ranks}",
                                "MISMATCH")
        self.job = World(parent.split(0 if parent.rank in self.ranks else 1 + parent.rank), strategy=parent.strategy)
        self.process_set_id = 1 + max([one.process_set_id for one in parent.sets], default=0)
        parent.sets.append(self)

    def end(self):
        self.job.shutdown()
        self.process_set_id = self.job = None

    def size(self):
        """None where the set has not begun, as of the other two."""
        return None if self.process_set_id is None else len(self.ranks)

    def rank(self):
        """The rank in this set. Roots of collectives are ranks of the job."""
        if self.process_set_id is None:
            return None
        return self.index(world().rank, "ProcessSet.rank()")

    def included(self):
        """Whether this process is in the set."""
        return None if self.process_set_id is None else world().rank in self.ranks

    def index(self, rank, doing):
        """The number in the set of a rank of the job."""
        if rank not in self.ranks:
            raise ArgumentError(f"{doing}: rank {rank} is not part of the process set, whose ranks are {self.ranks}")
        return self.ranks.index(rank)

    def __str__(self):
        return f"ProcessSet(process_set_id={self.process_set_id}, ranks={self.ranks})"


class GlobalProcessSet(ProcessSet):
    """All ranks of the job, whatever they are now."""

    process_set_id = 0

    def __init__(self):
        pass

    @property
    def job(self):
        return world()

    @property
    def ranks(self):
        return list(range(world().size)) if worlds.is_initialized() else []

    def index(self, rank, doing):
        return rank  # the library refuses those that are none


global_process_set = GlobalProcessSet()


def checked_ranks(ranks):
    try:
        ranks = sorted(ranks)
    except TypeError:
        ranks = [None]
    if any(type(rank) is not int for rank in ranks):
        raise ArgumentError("ProcessSet: give a list of ranks, as in ProcessSet([0, 2])")
    return ranks


def job_of(process_set, doing):
    """The World of a collective."""
    if process_set is global_process_set:
        return world()
    job = job_of_optimizer(process_set, doing)
    process_set.index(world().rank, doing)
    return job


def job_of_optimizer(process_set, doing):
    """The World of an optimiser: that of one rank where this one is not in the set."""
    if not isinstance(process_set, ProcessSet):
        raise ArgumentError(f"{doing}: process_set is {process_set!r}, but has to be a ProcessSet")
    if process_set.process_set_id is None:
        raise ArgumentError(f"{doing}: {process_set} was not added, or has ended: call add_process_set() on all ranks")
    return process_set.job


def taking_part(process_set, doing):
    """The same for a call that is no all-reduce: ranks that have joined cannot answer it."""
    job = job_of(process_set, doing)
    joining.announce(job, joining.OTHER, 0, 0, 0, doing)
    return job


def add_process_set(process_set):
    """Begins a set, of a ProcessSet or a list of ranks, and returns it. All ranks of the job call it."""
    one, job = process_set if isinstance(process_set, ProcessSet) else ProcessSet(process_set), world()
    if one.ranks and not 0 <= one.ranks[0] <= one.ranks[-1] < job.size:
        raise ArgumentError(f"add_process_set: {one.ranks} has a rank that is not in the job of {job.size} ranks")
    for known in [global_process_set] + job.sets:
        if known.ranks == one.ranks or known is one:
            raise ArgumentError(f"add_process_set: there is such a process set already: {known}")
    one.begin(taking_part(global_process_set, "add_process_set"))
    return one


def remove_process_set(process_set):
    """Ends a set; True if it was one. All ranks of the job call it."""
    if process_set not in world().sets:
        return False
    world().sets.remove(process_set)
    process_set.end()
    return True


def init(strategy=None, join=False, comm=None, process_sets=None, **place):
    """Joins the job, as world.init, and begins process sets. "dynamic" is for Horovod's scripts: sets may be added at
    any time."""
    if comm or (strategy is not None and not isinstance(strategy, str)):
        raise ArgumentError("init: a communicator of MPI, or a list of ranks, has no meaning here: start the ranks of "
                            "the job by `gradwire run`, and give subsets of them as process_sets=")
    newest = worlds.init(strategy, join, **place)
    for one in [] if process_sets in (None, "dynamic") else process_sets:
        add_process_set(one)
    return newest
