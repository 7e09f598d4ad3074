"""gradwire for PyTorch, by Horovod's names:

    import gradwire.torch as gw
    gw.init()
    gw.broadcast_parameters(model.state_dict())
    average = gw.allreduce(tensor)

docs/pytorch.md describes all of it."""
from gradwire._library import GradwireError, __version__
from gradwire.torch import c10d  # noqa: F401  (torch.distributed learns the name "gradwire")
from gradwire.torch import horovod
from gradwire.torch.collectives import (Average, Max, Min, Product, Sum, allgather, allreduce, allreduce_,
                                        allreduce_async, allreduce_async_, alltoall, barrier, broadcast, broadcast_,
                                        grouped_allreduce, join, poll, reducescatter, synchronize)
from gradwire.torch.ddp import HookState, ddp_hook
from gradwire.torch.horovod import Compression
from gradwire.torch.objects import (allgather_object, broadcast_object, broadcast_optimizer_state,
                                    broadcast_parameters)
from gradwire.torch.optimizer import DistributedOptimizer
from gradwire.torch.profiling import profile
from gradwire.torch.recovery import regroup, shrink
from gradwire.torch.world import (cross_rank, cross_size, init, is_initialized, local_rank, local_size, rank, shutdown,
                                  size, start_timeline, stop_timeline)

__all__ = ["Average", "Compression", "DistributedOptimizer", "GradwireError", "HookState", "Max", "Min", "Product",
           "Sum", "__version__", "allgather", "allgather_object", "allreduce", "allreduce_", "allreduce_async",
           "allreduce_async_", "alltoall", "barrier", "broadcast", "broadcast_", "broadcast_object",
           "broadcast_optimizer_state", "broadcast_parameters", "cross_rank", "cross_size", "ddp_hook",
           "grouped_allreduce", "init", "is_initialized", "join", "local_rank", "local_size", "poll", "profile", "rank",
           "reducescatter", "regroup", "shrink", "shutdown", "size", "start_timeline", "stop_timeline", "synchronize"]


def __getattr__(name):
    raise horovod.missing(name)
