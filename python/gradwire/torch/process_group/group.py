"""The class that torch gets. Python can derive from ProcessGroup in every version of torch 2, and its calls then come
here without a detour through C++. From 2.15 on torch also asks each group for a Backend."""
import weakref

import torch
import torch.distributed as dist

from gradwire._library import GradwireError
from gradwire.torch.process_group.calls import Calls
from gradwire.torch.process_group.monitored import monitored_barrier
from gradwire.torch.process_group.untraced import untraced

CPU = torch.device("cpu")
Backend = getattr(dist, "_Backend", object)  # torch 1 has none


@untraced
class ProcessGroupGradwire(Calls, dist.ProcessGroup):
    """`children` were split from this group, and end before it. `shutdown` runs once: when it is called, when nobody
    refers to the group any more, or when the process ends."""
    supports_splitting = True
    supports_coalescing = True
    supports_time_estimate = False
    supports_shrinking = False

    def __init__(self, communicator, store, name="", description="undefined"):
        dist.ProcessGroup.__init__(self, communicator.rank, communicator.size)
        self.attach(communicator)
        self.store, self.children, self.barriers = store, [], 0
        self.name_of_group, self.description = name, description
        self.shutdown = weakref.finalize(self, end, communicator, self.waiter, self.children)
        if "rank" in (Backend.__init__.__doc__ or ""):  # else Python cannot derive from it, and torch does not ask
            self.inner = Inner(communicator)
            self._register_backend(CPU, dist.ProcessGroup.BackendType.CUSTOM, self.inner)
            self._set_default_backend(dist.ProcessGroup.BackendType.CUSTOM)

    # Who and where.

    def rank(self):
        return self.communicator.rank

    def size(self):
        return self.communicator.size

    def getBackendName(self):
        return "gradwire"

    @property
    def _device_types(self):
        return [CPU]

    def _get_backend(self, device):
        if torch.device(device).type != "cpu":
            raise GradwireError(f"gradwire: No backend type associated with device type {torch.device(device).type}: "
                                "the process group works in host memory", "UNSUPPORTED")
        return self

    get_backend = _get_backend

    def supports_tensor_alloc(self, device):
        return torch.device(device).type == "cpu"

    def allocate_tensor(self, size, *, dtype, device):
        """Memory that the other ranks of the host reach, for tensors that are sent (fully_shard's
        set_allocate_memory_from_process_group_for_comm)."""
        return self.communicator.registered.allocate(size, dtype)

    def get_group_store(self):
        return self.store

    def _set_group_name(self, name):
        self.name_of_group = name

    def _set_group_desc(self, description):
        self.description = description

    @property
    def group_name(self):
        return self.name_of_group

    @property
    def group_desc(self):
        return self.description

    def _has_hooks(self):
        return False

    # Time and errors.

    def _set_sequence_number_for_group(self):
        self.communicator.number = 0

    def _get_sequence_number_for_group(self):
        return self.communicator.number

    def set_timeout(self, timeout):
        """Of calls from now on."""
        self.communicator.deadline = timeout.total_seconds()

    _set_default_timeout = set_timeout

    def monitored_barrier(self, timeout=None, wait_all_ranks=False):
        self.barriers += 1
        monitored_barrier(self.store, self.barriers, self.rank(), self.size(), timeout, wait_all_ranks)

    def get_error(self):
        """Never blocks."""
        kinds = torch._C._distributed_c10d.ErrorType
        known = {"OK": kinds.SUCCESS, "TIMEOUT": kinds.TIMEOUT, "PEER_LOST": kinds.REMOTE_ERROR}
        return known.get(self.communicator.status(), kinds.COMM_ERROR)

    def abort(self, reason="abort() was called"):
        self.communicator.abort(reason)

    def split_group(self, ranks, timeout=None, opts=None, group_name=None, group_desc=None, device_types=None):
        """The group of these ranks; None on the others. All ranks call it, each with the ranks of its own part."""
        inside = self.rank() in ranks
        part = self.communicator.split(min(ranks) if inside else -1, ranks.index(self.rank()) if inside else 0)
        if part is None:
            return None
        if timeout is not None:
            part.deadline = timeout.total_seconds()
        name = group_name or f"{self.group_name}:split:{'-'.join(map(str, ranks))}"
        child = ProcessGroupGradwire(part, dist.PrefixStore(f"{name}/", self.store), name, group_desc or "undefined")
        self.children.append(child)
        return child


class Inner(Calls, Backend):
    """The backend inside a group, for code of torch that asks for one."""

    def __init__(self, communicator):
        Backend.__init__(self, communicator.rank, communicator.size)
        self.attach(communicator)

    def getBackendName(self):
        return "gradwire"


def end(communicator, waiter, children):
    """Completes all calls and leaves the job."""
    for child in children:
        child.shutdown()
    communicator.close()
    waiter.close()
