"""Names and arguments of Horovod beyond those of gradwire.torch: accepted where they have a meaning here, else refused
with a sentence that says what to write instead."""
from gradwire._library import GradwireError

Sum, Average = 0, 1  # gw_redop


class Compression:
    """For DistributedOptimizer(compression=): parts of a strategy line. `none` leaves the choice to the job's line."""
    none, fp16, bf16 = "", "compress=fp16", "compress=bf16"


WAITS = "which returns when it is complete"
GROUPS = 'use torch.distributed.new_group after init_process_group("gradwire")'
INSTEAD = {
    "Adasum": "reduce with op=Average or op=Sum",
    "SyncBatchNorm": "normalise on every rank by itself, and average the running statistics with allreduce_",
    "ProcessSet": GROUPS, "add_process_set": GROUPS, "remove_process_set": GROUPS, "global_process_set": GROUPS,
    "allgather_async": f"use allgather, {WAITS}",
    "alltoall_async": f"use alltoall, {WAITS}",
    "broadcast_async": f"use broadcast, {WAITS}",
    "broadcast_async_": f"use broadcast_, {WAITS}",
    "elastic": "catch GradwireError and call shrink() or regroup()",
    "grouped_allgather": "use allgather for each",
    "grouped_allreduce_": "use grouped_allreduce, which returns new tensors",
    "grouped_allreduce_async": "use grouped_allreduce, or allreduce_async for each",
    "grouped_allreduce_async_": "use grouped_allreduce, or allreduce_async_ for each",
    "grouped_reducescatter": "use reducescatter for each",
    "reducescatter_async": f"use reducescatter, {WAITS}",
    "run": "start the script by `gradwire run -n 4 -- python3 train.py`",
    "sparse_allreduce_async": "use allreduce of tensor.to_dense()",
}
for built in ("mpi", "gloo", "nccl", "ddl", "ccl", "cuda", "rocm"):
    for asked in (f"{built}_built", f"{built}_enabled"):
        INSTEAD[asked] = "its transports are its own, see `gradwire list`"
INSTEAD["mpi_threads_supported"] = INSTEAD["mpi_built"]


def missing(name):
    """The error for a name that the module does not have."""
    reason = f": {INSTEAD[name]}" if name in INSTEAD else ""
    return AttributeError(f"gradwire.torch has no {name}{reason}")


def operation(doing, op, name, average=None, compression="", prescale_factor=1, postscale_factor=1, process_set=None):
    """The op for Horovod's arguments of a reduction."""
    average = name if isinstance(name, bool) else average  # the second argument there
    if compression:
        raise GradwireError(f"{doing}: compression is for DistributedOptimizer; reduce tensor.half() instead")
    if prescale_factor != 1 or postscale_factor != 1:
        raise GradwireError(f"{doing}: there is no prescale_factor and no postscale_factor; multiply the tensor by it")
    if process_set is not None:
        raise GradwireError(f"{doing}: there is no process_set: {GROUPS}")
    if average is not None:
        return Average if average else Sum
    return Average if op is None else op


def strategy(given, compression, gradient_predivide_factor=1, num_groups=0, groups=None, process_set=None):
    """The strategy for Horovod's arguments of a DistributedOptimizer. A mean does not depend on where it is divided
    (half precision is summed in f32), and the schedule decides which tensors are fused."""
    if process_set is not None:
        raise GradwireError(f"DistributedOptimizer: there is no process_set: {GROUPS}")
    for words in (given, compression):
        if words is not None and not isinstance(words, str):
            raise GradwireError(f"DistributedOptimizer: {words!r} is no line of a strategy: give "
                                'strategy="compress=topk:ratio=0.01", say, or compression=Compression.fp16')
    return " ".join(words for words in (given, compression) if words) or given
