"""A barrier that names the ranks which do not come. It goes through torch's store, so a rank that does not come does not
end the group."""
import datetime
import time

from gradwire._library import GradwireError

DEFAULT = datetime.timedelta(seconds=30)


def monitored_barrier(store, number, rank, size, timeout, all_ranks):
    """Rank 0 waits for the others, then tells them; they give it twice the time."""
    timeout = timeout or DEFAULT
    prefix = f"gradwire/monitored/{number}"
    if rank:
        store.set(f"{prefix}/{rank}", "")
        if not came(store, f"{prefix}/all", 2 * timeout):
            raise GradwireError(f"gradwire: Rank {rank} successfully reached monitoredBarrier, but received errors while "
                                "waiting to be unblocked by rank 0. Please check rank 0 logs for faulty rank.", "TIMEOUT")
        return
    missing, until = [], time.monotonic() + timeout.total_seconds()
    for other in range(1, size):
        left = datetime.timedelta(seconds=max(until - time.monotonic(), 0.001))
        if not came(store, f"{prefix}/{other}", left):
            missing.append(other)
            if not all_ranks:
                break
    if missing:
        names = f"Rank{'s' if len(missing) > 1 else ''} {', '.join(map(str, missing))}"
        raise GradwireError(f"gradwire: [Rank 0]: {names} failed to pass monitoredBarrier in "
                            f"{timeout / datetime.timedelta(milliseconds=1):.0f} ms", "TIMEOUT")
    store.set(f"{prefix}/all", "")


def came(store, key, timeout):
    try:
        store.wait([key], timeout)
        return True
    except RuntimeError:
        return False
