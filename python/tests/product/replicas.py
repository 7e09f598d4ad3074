"""Runs of DistributedDataParallel over the default group, with a communication hook or without one."""
import torch
from torch.nn.parallel import DistributedDataParallel

import gradwire.torch as gw
from tests.product.runner import NEGATIVE


def local_hook(state, bucket):
    """Of the negative control: the bucket of this rank."""
    future = torch.futures.Future()
    future.set_result(bucket.buffer())
    return future


def hook(model, line):
    """gradwire's hook, without a state or with one that has a strategy."""
    if NEGATIVE:
        model.register_comm_hook(None, local_hook)
    else:
        model.register_comm_hook(None if line is None else gw.HookState(line, model.named_parameters()), gw.ddp_hook)


def replicated(**options):
    def distribute(run):
        run.model = DistributedDataParallel(run.module, **options)
    return distribute


def hooked(line, **options):
    def distribute(run):
        replicated(**options)(run)
        hook(run.model, line)
    return distribute


