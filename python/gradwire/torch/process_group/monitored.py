"""A barrier that names the ranks which do not come. It goes through torch's store, so a rank that does not come does
not end the group."""
import datetime
import time

from gradwire._library import GradwireError

DEFAULT = datetime.timedelta(seconds=30)
LEAST = 0.01  # seconds for a look at the store when the time is over


def monitored_barrier(store, number, rank, size, timeout, all_ranks):
    """Rank 0 waits for the others, then tells them; they give it twice the time. The sentences begin with torch's."""
    timeout = DEFAULT if timeout is None else timeout
    prefix = f"gradwire/monitored/{number}"
    if rank == 0:
        await_others(store, prefix, size, timeout, all_ranks)
        store.set(f"{prefix}/all", "")
        return
    store.set(f"{prefix}/{rank}", "")
    if not came(store, f"{prefix}/all", 2 * timeout):
        raise GradwireError(f"gradwire: Rank {rank} successfully reached monitoredBarrier, but received errors while "
                            "waiting to be unblocked by rank 0. Please check rank 0 logs for faulty rank.", "TIMEOUT")


def await_others(store, prefix, size, timeout, all_ranks):
    missing, until = [], time.monotonic() + timeout.total_seconds()
    milliseconds = f"{timeout.total_seconds() * 1000:.0f} ms"
    for other in range(1, size):
        left = until - time.monotonic()
        if left <= 0 and not missing:
            raise GradwireError(f"gradwire: Rank 0 timed out in monitoredBarrier after {milliseconds}; rank {other} "
                                "and later ones were not looked for", "TIMEOUT")
        if not came(store, f"{prefix}/{other}", datetime.timedelta(seconds=max(left, LEAST))):
            missing.append(other)
            if not all_ranks:
                break
    if missing:
        names = f"Rank{'s' if len(missing) > 1 else ''} {', '.join(map(str, missing))}"
        raise GradwireError(f"gradwire: [Rank 0]: {names} failed to pass monitoredBarrier in {milliseconds}", "TIMEOUT")


def came(store, key, timeout):
    try:
        store.wait([key], timeout)
        return True
    except RuntimeError:
        return False
