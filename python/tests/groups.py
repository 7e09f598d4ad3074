"""Process groups for tests: each test has one of its own."""
import functools
import itertools

import torch.distributed as dist

import gradwire.torch as gw


@functools.lru_cache
def store():
    server = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False) if gw.rank() == 0 else None
    port = gw.broadcast_object(server.port if server else None, 0)
    return server or dist.TCPStore("127.0.0.1", port)


def begin(numbers=itertools.count(), **options):
    dist.init_process_group("gradwire", store=dist.PrefixStore(f"{next(numbers)}/", store()), rank=gw.rank(),
                            world_size=gw.size(), **options)


def in_a_group(test):
    @functools.wraps(test)
    def inside():
        begin()
        test()
        dist.destroy_process_group()

    return inside
