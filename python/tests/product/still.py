"""The group of the negative control: each rank believes that there are N ranks, and that all of them have what it has.
So a case over this group computes, and fails by its values."""
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import _create_work_from_future


def done(results):
    future = torch.futures.Future()
    future.set_result(results)
    return _create_work_from_future(future)


class Still(dist.ProcessGroup):
    """Nothing leaves the process."""

    def __init__(self, store, rank, size):
        super().__init__(rank, size)
        self.store, self.rank_, self.size_, self.name = store, rank, size, ""

    def rank(self):
        return self.rank_

    def size(self):
        return self.size_

    def getBackendName(self):
        return "still"

    def get_group_store(self):
        return self.store

    def _set_group_name(self, name):
        self.name = name

    @property
    def group_name(self):
        return self.name

    def unchanged(self, tensors, *_):
        return done(tensors)

    allreduce = allreduce_coalesced = reduce = send = unchanged

    def broadcast(self, tensors, opts, *_):
        """Torch sends the sizes of objects in memory that is not set before: they must not stay what they are."""
        for tensor in tensors:
            if opts.rootRank != self.rank_ and not tensor.is_floating_point() and not tensor.is_complex():
                tensor.zero_()
        return done(tensors)

    def recv(self, tensors, *_):
        for tensor in tensors:
            tensor.zero_()
        return done(tensors)

    recv_anysource = recv

    def barrier(self, opts=None):
        return done([])

    def monitored_barrier(self, *_):
        pass

    def allgather(self, outputs, inputs, *_):
        for of_ranks, mine in zip(outputs, inputs):
            for rank, one in enumerate(of_ranks):
                if rank == self.rank_ or one.shape == mine.shape:
                    one.copy_(mine)
        return done(outputs)

    def gather(self, outputs, inputs, *_):
        return self.allgather(outputs, inputs)

    def scatter(self, outputs, inputs, *_):
        return self.reduce_scatter(outputs, inputs)

    def reduce_scatter(self, outputs, inputs, *_):
        for output, pieces in zip(outputs, inputs):
            output.copy_(pieces[self.rank_])
        return done(outputs)

    def _allgather_base(self, output, mine, *_):
        return self.allgather_into_tensor_coalesced([output], [mine])

    def _reduce_scatter_base(self, output, whole, *_):
        return self.reduce_scatter_tensor_coalesced([output], [whole])

    def allgather_into_tensor_coalesced(self, outputs, inputs, *_):
        for output, mine in zip(outputs, inputs):
            output.view(self.size_, -1).copy_(mine.reshape(1, -1).expand(self.size_, -1))
        return done(outputs)

    def reduce_scatter_tensor_coalesced(self, outputs, inputs, *_):
        for output, whole in zip(outputs, inputs):
            output.view(-1).copy_(whole.reshape(self.size_, -1)[self.rank_])
        return done(outputs)

    def alltoall(self, outputs, inputs, *_):
        for output, mine in zip(outputs, inputs):
            output.copy_(mine)
        return done(outputs)

    def alltoall_base(self, output, mine, *_):
        count = min(output.numel(), mine.numel())
        output.view(-1)[:count].copy_(mine.reshape(-1)[:count])
        return done([output])

    all_gather_single, reduce_scatter_single, all_to_all_single = _allgather_base, _reduce_scatter_base, alltoall_base
    all_gather_single_coalesced = allgather_into_tensor_coalesced
    reduce_scatter_single_coalesced = reduce_scatter_tensor_coalesced


def create(store, rank, size, timeout):
    return Still(store, rank, size)


dist.Backend.register_backend("still", create, devices=["cpu"])
