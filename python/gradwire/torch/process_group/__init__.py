"""The process group "gradwire" of torch.distributed, in Python over libgradwire's gw_call.

    rendezvous.py    each group is a job of its own, which meets through torch's store
    communicator.py  a gw_comm with its lock, its deadline and the calls that are under way
    works.py         a call under way: torch's Work, and its future
    elements.py      tensors and reductions as the library knows them
    calls.py         the calls of c10d, one by one
    issuing.py       how a call runs: at once, in the background, coalesced
    sparse.py        the sum of sparse tensors
    watch.py         ranges for torch's profiler
    flight.py        the last calls, as torch's flight recorder writes them
    monitored.py     the barrier that names missing ranks
    untraced.py      torch.compile leaves these classes alone
    group.py         the class that torch gets"""
