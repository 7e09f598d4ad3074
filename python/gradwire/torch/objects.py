"""Whole models, optimisers and Python objects between ranks."""
import hashlib
import pickle

import torch

from gradwire._library import GradwireError
from gradwire.torch import collectives, joining
from gradwire.torch.errors import ArgumentError
from gradwire.torch.handles import Together
from gradwire.torch.process_sets import global_process_set, taking_part
from gradwire.torch.tensors import called
from gradwire.torch.world import world


def broadcast_object(obj, root_rank=0, name=None, process_set=global_process_set):
    """The root's object on every rank. Objects are pickled: only for jobs whose ranks trust each other."""
    doing = called("broadcast_object", name)
    job = taking_part(process_set, doing)
    root = process_set.index(root_rank, doing)
    if not 0 <= root < job.size:
        raise ArgumentError(f"{doing}: root {root} is not in the job of {job.size} ranks")
    return pass_object(job, obj, root, doing)


def pass_object(job, obj, root, doing):
    """The same in any World; `root` is a rank of it."""
    mine = bytearray(pickle.dumps(obj)) if job.rank == root else bytearray()
    length = job.gather(len(mine))[root]
    line = torch.frombuffer(mine, dtype=torch.uint8) if mine else torch.empty(length, dtype=torch.uint8)
    collectives.broadcast_task(job, doing, line, line, root).run()
    return obj if job.rank == root else pickle.loads(line.numpy().tobytes())


def allgather_object(obj, name=None, process_set=global_process_set):
    """Every rank's object, in rank order."""
    doing = called("allgather_object", name)
    return gather_objects(taking_part(process_set, doing), obj, doing)


def gather_objects(job, obj, doing):
    """The same in any World."""
    mine = torch.frombuffer(bytearray(pickle.dumps(obj)), dtype=torch.uint8)
    lengths = job.gather(mine.numel())
    whole, _ = collectives.allgather_task(job, doing, mine.device, mine, lengths).run()
    return [pickle.loads(part.numpy().tobytes()) for part in whole.split(lengths)]


def described(named):
    return [(name, tuple(t.shape), str(t.dtype)[6:]) for name, t in named]


def agree(named, what, job=None):
    """Checks that all ranks of a World, usually the job's, have the same tensors in the same order; otherwise raises
    the first difference on all."""
    job, mine = job or world(), described(named)
    if job.comm is None:
        raise GradwireError(f"{what}: its process set has ended: it was removed, or a rank was lost. Add it again, and "
                            "make a new one with it")
    joining.announce(job, joining.OTHER, 0, 0, 0, what)
    digest = int.from_bytes(hashlib.sha256(repr(mine).encode()).digest()[:7], "big")
    if len(set(job.gather(digest))) == 1:
        return
    lists = gather_objects(job, mine, what)
    for other, theirs in enumerate(lists):
        for index in range(max(len(theirs), len(lists[0]))):
            pair = [one[index] if index < len(one) else None for one in (lists[0], theirs)]
            if pair[0] != pair[1]:
                raise GradwireError(f"{what}: ranks have different tensors at place {index}: rank 0 "
                                    f"{entry_text(pair[0])}, rank {other} {entry_text(pair[1])}", "MISMATCH")


def entry_text(entry):
    return "no more" if entry is None else f'"{entry[0]}" ({entry[2]} of shape {list(entry[1])})'


def broadcast_parameters(params, root_rank=0):
    """The root's values in place: of model.state_dict(), model.named_parameters(), model.parameters() or a list."""
    if isinstance(params, (str, torch.Tensor)) or not hasattr(params, "__iter__"):
        raise ArgumentError(f"broadcast_parameters: a {type(params).__name__} is no state_dict and no list of tensors")
    listed = list(params.items() if isinstance(params, dict) else params)
    named = [one if isinstance(one, tuple) else (f"parameter {place}", one) for place, one in enumerate(listed)]
    named = [(name, t) for name, t in named if isinstance(t, torch.Tensor)]
    agree(named, "broadcast_parameters")
    broadcast_all(named, root_rank)


def broadcast_all(named, root_rank):
    """All of them at once."""
    job = world()
    Together(job, "broadcast_parameters", [
        collectives.broadcast_task(job, f'broadcast of "{name}"', tensor, tensor, root_rank)
        for name, tensor in named]).run()


def taken_apart(value, tensors, path):
    """The same structure with a placeholder for every tensor; the tensors are appended to the list."""
    if isinstance(value, torch.Tensor):
        tensors.append((path, value))
        return Place(len(tensors) - 1, tuple(value.shape), value.dtype)
    if isinstance(value, dict):
        return {key: taken_apart(one, tensors, f"{path}.{key}") for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(taken_apart(one, tensors, f"{path}.{i}") for i, one in enumerate(value))
    return value


class Place:
    def __init__(self, index, shape, dtype):
        self.index, self.shape, self.dtype = index, shape, dtype


def put_together(value, tensors):
    if isinstance(value, Place):
        return tensors[value.index][1]
    if isinstance(value, dict):
        return {key: put_together(one, tensors) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(put_together(one, tensors) for one in value)
    return value


def places(value):
    if isinstance(value, Place):
        yield value
    elif isinstance(value, (dict, list, tuple)):
        for one in value.values() if isinstance(value, dict) else value:
            yield from places(one)


def broadcast_structure(value, root_rank):
    """The root's value on every rank, as from broadcast_object, but tensors are not pickled, and received ones are in
    host memory."""
    tensors = []
    skeleton = broadcast_object(taken_apart(value, tensors, "state"), root_rank)
    if world().rank != root_rank:
        tensors = [(f"state {p.index}", torch.empty(p.shape, dtype=p.dtype))
                   for p in sorted(places(skeleton), key=lambda p: p.index)]
    broadcast_all(tensors, root_rank)
    return put_together(skeleton, tensors)


def broadcast_optimizer_state(optimizer, root_rank=0, model=None):
    """The root's state on every rank, also where the others have none yet. Horovod's `model` is not needed."""
    if isinstance(optimizer, torch.optim.LBFGS):
        raise ArgumentError("broadcast_optimizer_state: LBFGS cannot be distributed")
    state = broadcast_structure(optimizer.state_dict(), root_rank)
    if world().rank != root_rank or hasattr(optimizer, "synchronize"):  # all ranks commit its reducer again
        optimizer.load_state_dict(state)
