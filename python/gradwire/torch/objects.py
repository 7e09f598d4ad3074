"""Whole models, optimisers and Python objects between ranks."""
import hashlib
import pickle

import torch

from gradwire._library import GradwireError, check, lib
from gradwire.torch import collectives, joining, staging
from gradwire.torch.tensors import moved_as
from gradwire.torch.world import world


def broadcast_object(obj, root_rank=0, name=None):
    """The root's object on every rank. Objects are pickled: only for jobs whose ranks trust each other."""
    job = world()
    joining.announce(job, joining.OTHER, 0, 0, 0, "broadcast_object")
    mine = bytearray(pickle.dumps(obj)) if job.rank == root_rank else bytearray()
    length = job.gather(len(mine))[root_rank]
    line = torch.frombuffer(mine, dtype=torch.uint8) if mine else torch.empty(length, dtype=torch.uint8)
    collectives.broadcast_(line, root_rank, name)
    return obj if job.rank == root_rank else pickle.loads(line.numpy().tobytes())


def allgather_object(obj, name=None):
    """Every rank's object, in rank order."""
    job, mine = world(), bytearray(pickle.dumps(obj))
    joining.announce(job, joining.OTHER, 0, 0, 0, "allgather_object")
    lengths = job.gather(len(mine))
    whole = collectives.allgather(torch.frombuffer(mine, dtype=torch.uint8), name).numpy().tobytes()
    ends = [sum(lengths[:r + 1]) for r in range(job.size)]
    return [pickle.loads(whole[end - length:end]) for end, length in zip(ends, lengths)]


def described(named):
    return [(name, tuple(t.shape), str(t.dtype)[6:]) for name, t in named]


def agree(named, what):
    """Checks that all ranks have the same tensors in the same order; otherwise raises the first difference on all."""
    job, mine = world(), described(named)
    joining.announce(job, joining.OTHER, 0, 0, 0, what)
    digest = int.from_bytes(hashlib.sha256(repr(mine).encode()).digest()[:7], "big")
    if len(set(job.gather(digest))) == 1:
        return
    lists = allgather_object(mine)
    for other, theirs in enumerate(lists):
        for index in range(max(len(theirs), len(lists[0]))):
            pair = [one[index] if index < len(one) else None for one in (lists[0], theirs)]
            if pair[0] != pair[1]:
                raise GradwireError(f"{what}: ranks have different tensors at place {index}: rank 0 "
                                    f"{entry_text(pair[0])}, rank {other} {entry_text(pair[1])}", "MISMATCH")


def entry_text(entry):
    return "no more" if entry is None else f'"{entry[0]}" ({entry[2]} of shape {list(entry[1])})'


def broadcast_parameters(params, root_rank=0):
    """The root's values in place: of model.state_dict(), model.named_parameters() or a list of pairs."""
    named = list(params.items() if isinstance(params, dict) else params)
    named = [(name, t) for name, t in named if isinstance(t, torch.Tensor)]
    agree(named, "broadcast_parameters")
    broadcast_all(named, root_rank)


def broadcast_all(named, root_rank):
    """Contiguous tensors in host memory, which are most of them, go in one group."""
    job, together, alone = world(), [], []
    for name, tensor in named:
        in_place = not tensor.is_sparse and not staging.needed(tensor) and tensor.is_contiguous()
        (together if in_place else alone).append((name, tensor))
    with collectives.group(job, "broadcast_parameters"):
        for name, tensor in together:
            at = tensor.data_ptr()
            check(lib.gw_broadcast(job.comm, at, at, *moved_as(tensor), root_rank), job.comm,
                  f'broadcast of "{name}"')
    for name, tensor in alone:
        collectives.broadcast_(tensor, root_rank, name)


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


def broadcast_optimizer_state(optimizer, root_rank=0):
    """The root's state on every rank, also where the others have none yet."""
    state = broadcast_structure(optimizer.state_dict(), root_rank)
    if world().rank != root_rank or hasattr(optimizer, "synchronize"):  # all ranks commit its reducer again
        optimizer.load_state_dict(state)
