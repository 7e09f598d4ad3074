"""How the ranks of a group meet: each group is a job of its own, whose first rank writes the rendezvous address to
torch's store."""
import contextlib
import ipaddress
import os
import socket

from torch.distributed.constants import default_pg_timeout

from gradwire._library import Options
from gradwire.torch import world as worlds
from gradwire.torch.process_group.communicator import Communicator

ANY_ROUTE = "192.0.2.1"  # a documentation address (RFC 5737): the kernel routes it by the default interface


def is_name(host):
    """Whether it is a host name that other hosts resolve too."""
    try:
        ipaddress.ip_address(host)
        return False
    except ValueError:
        return host != "localhost"


def rendezvous_address():
    """For the first rank of a group: the address of its host for the others, and the address and family to listen at.
    Debian resolves a host's own name to 127.0.1.1; other hosts resolve it to a reachable address, and libgradwire knows
    this case."""
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


def join_group(store, rank, size, timeout):
    """Joins the job of one group. A store may serve one group after another: each has a number in it, which every rank
    counts for itself."""
    deadline = 0 if timeout == default_pg_timeout else timeout.total_seconds()  # torch's own default is half an hour
    key = f"gradwire/{store.add(f'gradwire/joined/{rank}', 1)}"
    if rank == 0:
        address, own, family = rendezvous_address()
        listener = socket.create_server((own, 0), family=family, backlog=max(size, 16))
        port = listener.getsockname()[1]
        store.set(key, f"{address} {port}")
        descriptor = str(listener.detach())  # libgradwire closes it
    else:
        address, port = store.get(key).decode().split()
        descriptor = None
    options = Options(rank=rank, world=size, master_addr=address.encode(), master_port=int(port),
                      deadline_s=deadline)
    with environment(GRADWIRE_LISTEN_FD=descriptor, TORCHELASTIC_RUN_ID=None):
        return Communicator(worlds.open_comm(options), deadline)
