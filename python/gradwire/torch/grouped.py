"""Collectives on several tensors at once: small ones of the same type travel together."""
from gradwire.torch import collectives, staging
from gradwire.torch.errors import ArgumentError
from gradwire.torch.handles import Together
from gradwire.torch.operations import Average, operation
from gradwire.torch.process_sets import global_process_set, job_of, taking_part
from gradwire.torch.tensors import called


class Several:
    """Tensors that go through staging buffers, each with a handle of its own, which `start` makes."""

    def __init__(self, start, tensors):
        self.begin, self.tensors, self.handles = start, tensors, []

    def start(self):
        self.handles = [self.begin(tensor) for tensor in self.tensors]
        return self

    def run(self):
        return self.start().wait()

    def poll(self):
        return all([handle.poll() for handle in self.handles])

    def wait(self):
        return tuple(handle.wait() for handle in self.handles)


def one_place(tensors, doing):
    if len({tensor.device for tensor in tensors}) > 1:
        raise ArgumentError(f"{doing}: the tensors of a group have to be on one device")
    return list(tensors)


def allreducing(tensors, average, name, op, prescale_factor, postscale_factor, process_set, in_place):
    doing = called("grouped_allreduce", name)
    job, op, tensors = job_of(process_set, doing), operation(doing, op, average), one_place(tensors, doing)
    rest = op, prescale_factor, postscale_factor, in_place
    if any(staging.needed(tensor) for tensor in tensors):
        return Several(lambda tensor: collectives.staged_allreduce(job, doing, tensor, *rest), tensors)
    return Together(job, doing, [collectives.allreduce_task(job, doing, tensor, *rest) for tensor in tensors])


def grouped_allreduce_async(tensors, average=None, name=None, op=None, prescale_factor=1.0, postscale_factor=1.0,
                            process_set=global_process_set):
    """As grouped_allreduce; synchronize(handle) gives a tuple."""
    return allreducing(tensors, average, name, op, prescale_factor, postscale_factor, process_set, False).start()


def grouped_allreduce_async_(tensors, average=None, name=None, op=None, prescale_factor=1.0, postscale_factor=1.0,
                             process_set=global_process_set):
    """As grouped_allreduce_; the tensors are the library's until synchronize(handle)."""
    return allreducing(tensors, average, name, op, prescale_factor, postscale_factor, process_set, True).start()


def grouped_allreduce_(tensors, average=None, name=None, op=None, prescale_factor=1.0, postscale_factor=1.0,
                       process_set=global_process_set):
    """The combination of each tensor, in place; returns a tuple of its tensors."""
    return allreducing(tensors, average, name, op, prescale_factor, postscale_factor, process_set, True).run()


def allgathering(tensors, name, process_set):
    """The result: for each tensor the rows of all ranks, and the place of this rank's."""
    doing = called("grouped_allgather", name)
    job, tasks = collectives.gathering(one_place(tensors, doing), doing, process_set)
    return Together(job, doing, tasks)


def grouped_allgather_async(tensors, name=None, process_set=global_process_set):
    """As grouped_allgather; synchronize(handle) gives a tuple. It waits until all ranks have called it, for their
    shapes."""
    handle = allgathering(tensors, name, process_set).start()
    handle.finish, gathered = lambda: tuple(whole for whole, _ in gathered()), handle.finish
    return handle


def reducescattering(tensors, name, op, process_set, prescale_factor, postscale_factor):
    doing = called("grouped_reducescatter", name)
    op, job = operation(doing, op), taking_part(process_set, doing)
    return Together(job, doing, [
        collectives.reducescatter_task(job, doing, tensor, op, prescale_factor, postscale_factor)
        for tensor in one_place(tensors, doing)])


def grouped_reducescatter_async(tensors, name=None, op=Average, process_set=global_process_set, prescale_factor=1.0,
                                postscale_factor=1.0):
    """As grouped_reducescatter; synchronize(handle) gives a tuple."""
    return reducescattering(tensors, name, op, process_set, prescale_factor, postscale_factor).start()
