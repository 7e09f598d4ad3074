"""A process group whose first host resolves its own name to 127.0.1.1, as Debian's do; python.sh makes the hosts."""
import torch
import torch.distributed as dist

import gradwire.torch  # noqa: F401

dist.init_process_group("gradwire")
ones = torch.ones(3)
dist.all_reduce(ones)
assert ones.tolist() == [dist.get_world_size()] * 3
dist.destroy_process_group()
