"""gradwire for PyTorch, by Horovod's names:

    import gradwire.torch as gw
    gw.init()
    gw.broadcast_parameters(model.state_dict())
    average = gw.allreduce(tensor)

docs/reference/pytorch.md describes all of it."""
from gradwire._library import GradwireError, __version__
from gradwire.torch import c10d  # noqa: F401  (torch.distributed learns the name "gradwire")
from gradwire.torch import elastic, horovod
from gradwire.torch.coded import CodedCollective
from gradwire.torch.collectives import (allgather_async, allreduce_, allreduce_async, allreduce_async_, alltoall_async,
                                        barrier, broadcast_, broadcast_async, broadcast_async_, join,
                                        reducescatter_async)
from gradwire.torch.compression import Compression
from gradwire.torch.ddp import HookState, ddp_hook
from gradwire.torch.differentiable import (allgather, allreduce, alltoall, broadcast, grouped_allgather,
                                           grouped_allreduce, grouped_reducescatter, reducescatter)
from gradwire.torch.errors import HorovodInternalError, HostsUpdatedInterrupt
from gradwire.torch.grouped import (grouped_allgather_async, grouped_allreduce_, grouped_allreduce_async,
                                    grouped_allreduce_async_, grouped_reducescatter_async)
from gradwire.torch.handles import poll, synchronize
from gradwire.torch.horovod import (ccl_built, cuda_built, ddl_built, gloo_built, gloo_enabled, mpi_built, mpi_enabled,
                                    mpi_threads_supported, nccl_built, rocm_built)
from gradwire.torch.objects import (allgather_object, broadcast_object, broadcast_optimizer_state,
                                    broadcast_parameters)
from gradwire.torch.operations import Adasum, Average, Max, Min, Product, Sum
from gradwire.torch.optimizer import DistributedOptimizer
from gradwire.torch.process_sets import ProcessSet, add_process_set, global_process_set, init, remove_process_set
from gradwire.torch.profiling import profile
from gradwire.torch.recovery import regroup, shrink
from gradwire.torch.sparse import sparse_allreduce_async
from gradwire.torch.sync_batch_norm import SyncBatchNorm
from gradwire.torch.world import (cross_rank, cross_size, is_homogeneous, is_initialized, local_rank, local_size, rank,
                                  shutdown, size, start_timeline, stop_timeline)

__all__ = [
    "Adasum", "Average", "CodedCollective", "Compression", "DistributedOptimizer", "GradwireError", "HookState", "HorovodInternalError",
    "HostsUpdatedInterrupt", "Max", "Min", "ProcessSet", "Product", "Sum", "SyncBatchNorm", "__version__",
    "add_process_set", "allgather", "allgather_async", "allgather_object", "allreduce", "allreduce_",
    "allreduce_async", "allreduce_async_", "alltoall", "alltoall_async", "barrier", "broadcast", "broadcast_",
    "broadcast_async", "broadcast_async_", "broadcast_object", "broadcast_optimizer_state", "broadcast_parameters",
    "ccl_built", "cross_rank", "cross_size", "cuda_built", "ddl_built", "ddp_hook", "elastic", "global_process_set",
    "gloo_built", "gloo_enabled", "grouped_allgather", "grouped_allgather_async", "grouped_allreduce",
    "grouped_allreduce_", "grouped_allreduce_async", "grouped_allreduce_async_", "grouped_reducescatter",
    "grouped_reducescatter_async", "init", "is_homogeneous", "is_initialized", "join", "local_rank", "local_size",
    "mpi_built", "mpi_enabled", "mpi_threads_supported", "nccl_built", "poll", "profile", "rank", "reducescatter",
    "reducescatter_async", "regroup", "remove_process_set", "rocm_built", "shrink", "shutdown", "size",
    "sparse_allreduce_async", "start_timeline", "stop_timeline", "synchronize"]


def __getattr__(name):
    raise horovod.missing(name)
