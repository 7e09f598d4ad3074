"""torch.distributed.init_process_group("gradwire"): a process group over libgradwire.

The group itself is a small C++ extension (python/csrc/process_group.cc), because torch has no other way in; where it
has not been built, choosing the backend says how. Each group is a job of its own, whose ranks meet at a port that its
first rank publishes in torch's store."""
import contextlib
import importlib
import ipaddress
import os
import socket

import torch.distributed as dist
from torch.distributed.constants import default_pg_timeout

from gradwire._library import GradwireError, Options
from gradwire.torch import world as worlds

HOW = ("the process group of gradwire is not built: `python3 setup.py build_ext --inplace` in gradwire's python "
       "directory does it where torch's headers are (Debian: libtorch-dev, pybind11-dev, python3-dev)")


ANY_ROUTE = "192.0.2.1"  # of documents (RFC 5737): reached, if at all, by the interface of everything else


def extension():
    try:
        return importlib.import_module("gradwire._c10d")
    except ImportError as error:
        raise GradwireError(f"{HOW} ({error})", "UNSUPPORTED") from None


def is_name(host):
    """Of a host, as the others of its network resolve it too."""
    try:
        ipaddress.ip_address(host)
        return False
    except ValueError:
        return host != "localhost"


def meeting_point():
    """For the first rank of a group: how the others name its host, and the address and family to listen at. Debian gives
    a host's own name the address 127.0.1.1: others resolve it to one that they can reach, and libgradwire knows."""
    master = os.environ.get("MASTER_ADDR")
    family, kind, protocol, _, there = socket.getaddrinfo(master or ANY_ROUTE, 9, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind, protocol) as probe:
        try:
            probe.connect(there)  # sends nothing; only chooses the interface
        except OSError:
            if master:
                raise
            return "127.0.0.1", "127.0.0.1", socket.AF_INET  # a host without a network
        address = probe.getsockname()[0]
    if master and is_name(master) and ipaddress.ip_address(address.split("%")[0]).is_loopback:
        return master, "", family
    return address, address, family


@contextlib.contextmanager
def environment(**changes):
    before = {name: os.environ.get(name) for name in changes}
    put(changes)
    try:
        yield
    finally:
        put(before)


def put(variables):
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def meet(store, rank, size, deadline):
    """Joins the job of one group."""
    if rank == 0:
        address, own, family = meeting_point()
        listener = socket.create_server((own, 0), family=family, backlog=max(size, 16))
        port = listener.getsockname()[1]
        store.set("gradwire", f"{address} {port}")
        descriptor = str(listener.detach())  # libgradwire closes it
    else:
        address, port = store.get("gradwire").decode().split()
        descriptor = None
    options = Options(rank=rank, world=size, master_addr=address.encode(), master_port=int(port),
                      deadline_s=deadline)
    with environment(GRADWIRE_LISTEN_FD=descriptor, TORCHELASTIC_RUN_ID=None):
        return worlds.open_comm(options)


def create(store, rank, size, timeout):
    """What torch calls for every new group, on its members."""
    built = extension()
    deadline = 0 if timeout == default_pg_timeout else timeout.total_seconds()  # torch's own default is half an hour
    group = built.ProcessGroupGradwire(rank, size, meet(store, rank, size, deadline).value)
    worlds.watch(group)
    return group


def register():
    if not dist.is_available() or hasattr(dist.Backend, "GRADWIRE"):
        return
    try:
        dist.Backend.register_backend("gradwire", create, devices=["cpu"])  # torch 2
    except TypeError:
        dist.Backend.register_backend("gradwire", create)


register()
