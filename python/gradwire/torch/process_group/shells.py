"""The class of the group. Up to torch 2.13 Python can only derive from ProcessGroup, which then is the whole group;
later from Backend, which serves one type of device inside a group of torch's."""
import torch
import torch.distributed as dist

from gradwire._library import GradwireError
from gradwire.torch.process_group.calls import Calls
from gradwire.torch.process_group.monitored import monitored_barrier


class Common(Calls):
    """What is not a call, for both shells."""
    supports_splitting = True
    supports_coalescing = True
    supports_time_estimate = False
    supports_shrinking = False

    def begin(self, communicator, store):
        self.attach(communicator)
        self.store, self.children, self.barriers = store, [], 0

    def rank(self):
        return self.communicator.rank

    def size(self):
        return self.communicator.size

    def getBackendName(self):
        return "gradwire"

    def _get_backend_name(self):
        return "gradwire"

    def monitored_barrier(self, timeout=None, wait_all_ranks=False):
        timeout = getattr(timeout, "timeout", timeout)  # torch 2.15 passes options
        self.barriers += 1
        monitored_barrier(self.store, self.barriers, self.rank(), self.size(), timeout, wait_all_ranks)

    def _set_sequence_number_for_group(self):
        self.communicator.number = 0

    def _get_sequence_number_for_group(self):
        return self.communicator.number

    def set_timeout(self, timeout):
        """Of calls from now on."""
        self.communicator.deadline = timeout.total_seconds()

    _set_default_timeout = set_timeout

    def get_error(self):
        """dist.ErrorType; never blocks."""
        status, kinds = self.communicator.status(), torch._C._distributed_c10d.ErrorType
        return {"OK": kinds.SUCCESS, "TIMEOUT": kinds.TIMEOUT, "PEER_LOST": kinds.REMOTE_ERROR}.get(
            status, kinds.COMM_ERROR)

    def abort(self, reason="abort() was called"):
        self.communicator.abort(reason)

    def shutdown(self):
        """Completes all calls and leaves the job."""
        for child in self.children:
            child.shutdown()
        self.communicator.close()
        self.waiter.close()

    def part(self, ranks, timeout=None):
        """The communicator of these ranks; None on the others. All ranks of the group call it, each with its own."""
        inside = self.rank() in ranks
        part = self.communicator.split(min(ranks) if inside else -1, ranks.index(self.rank()) if inside else 0)
        if part is not None and timeout is not None:
            part.deadline = timeout.total_seconds()
        return part

    def adopt(self, child):
        """A group that was split from this one ends before it."""
        self.children.append(child)
        return child


class GroupShell(Common, dist.ProcessGroup):
    """A whole process group."""

    def __init__(self, communicator, store):
        dist.ProcessGroup.__init__(self, communicator.rank, communicator.size)
        self.begin(communicator, store)
        self.names = {"name": "", "desc": "undefined"}
        if "rank" in dist._Backend.__init__.__doc__:  # else Python cannot derive from it, and torch does not ask
            self.inner = Inner(communicator)
            self._register_backend(torch.device("cpu"), dist.ProcessGroup.BackendType.CUSTOM, self.inner)
            self._set_default_backend(dist.ProcessGroup.BackendType.CUSTOM)

    @property
    def _device_types(self):
        return [torch.device("cpu")]

    def _get_backend(self, device):
        if torch.device(device).type != "cpu":
            raise GradwireError(f"gradwire: No backend type associated with device type {torch.device(device).type}: "
                                "the process group works in host memory", "UNSUPPORTED")
        return self

    get_backend = _get_backend

    def get_group_store(self):
        return self.store

    def _set_group_name(self, name):
        self.names["name"] = name

    def _set_group_desc(self, desc):
        self.names["desc"] = desc

    @property
    def group_name(self):
        return self.names["name"]

    @property
    def group_desc(self):
        return self.names["desc"]

    def _has_hooks(self):
        return False

    def split_group(self, ranks, timeout=None, opts=None, group_name=None, group_desc=None, device_types=None):
        part = self.part(ranks, timeout)
        if part is None:
            return None
        name = group_name or f"{self.group_name}:split:{'-'.join(map(str, ranks))}"
        child = GroupShell(part, dist.PrefixStore(f"{name}/", self.store))
        child._set_group_name(name)
        child._set_group_desc(group_desc or "undefined")
        return self.adopt(child)


class Inner(Calls, dist._Backend):
    """The backend inside a GroupShell, for code of torch that asks a group for one."""

    def __init__(self, communicator):
        dist._Backend.__init__(self, communicator.rank, communicator.size)
        self.attach(communicator)

    def getBackendName(self):
        return "gradwire"
