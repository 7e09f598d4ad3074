#!/usr/bin/env python3
"""One rank of a comparison: seconds that a training step takes in several ways, in turns on the same model, beside
PyTorch's DistributedDataParallel with Gloo.

    gradwire run --lab hosts=2,rate=1gbit -- python3 bench/torch_ddp.py --model resnet50 ddp schedule=dear

A way is `alone` (nothing is sent), `ddp`, `ddp-fp16` (with torch's own fp16 hook), `ddp-bf16` (with one of the arithmetic
of torch's, which torch refuses on the CPU), `ddp-group` (over the process group of gradwire), `ddp-hook` (with its hook),
or a strategy for DistributedOptimizer; `auto` and `accuracy=safe` take the steps to choose that they need. A turn is some
steps to warm up and some that count, from the end of one step to the end of another; the time of a step is that of the slowest rank. Prints the median over the turns, the speed-up over ddp in the
same turn (again the median, and its range), and the processor time of a step, of all ranks together. Every other turn runs backwards,
because a machine that has worked for a while may be slower. A turn in which the hypervisor took processor time is
repeated, --again times at most.

The rate is zero, so that all steps have the same gradients: after the first step of a turn the ranks have to have the
same averages, bit for bit, and those of exact strategies have to be those of ddp."""
import argparse
import os
import pathlib
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "python"))
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch_models  # noqa: E402
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

import gradwire.torch as gw  # noqa: E402


def half_hook(_, bucket):
    """bf16_compress_hook: each rank divides, sums are of bf16."""
    half = bucket.buffer().to(torch.bfloat16).div_(dist.get_world_size())
    return dist.all_reduce(half, async_op=True).get_future().then(lambda sums: bucket.buffer().copy_(sums.value()[0]))


STOLEN = 0.005  # share of the machine from which on a turn does not count; undisturbed it is 0 to 0.001


class Alone:
    """Also what the others have in common."""

    def __init__(self, model, line):
        self.model, self.line = model, line

    def begin(self):
        """Before every turn."""
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0, momentum=0.9)

    def step(self, x, y):
        self.optimizer.zero_grad(set_to_none=True)
        torch.nn.functional.cross_entropy(self.model(x), y).backward()
        self.optimizer.step()

    def averages(self):
        """After the first step of a turn: of every gradient the sum, and that of what is in it."""
        kept = [self.optimizer.state[p]["momentum_buffer"].double() for p in self.model.parameters()]
        return [(k.sum().item(), k.abs().sum().item()) for k in kept]

    def is_choosing(self):
        """Its first steps are not like the later ones."""
        return False

    def end(self):
        """Whatever is under way is completed; the model is free for another way."""
        self.optimizer = None


class Ddp(Alone):
    """Buffers of normalisation are left alone, as by the others."""

    def __init__(self, model, line):
        group = dist.new_group(backend="gradwire") if line == "ddp-group" else None
        super().__init__(DistributedDataParallel(model, broadcast_buffers=False, process_group=group), line)
        hook = {"ddp-fp16": fp16_compress_hook, "ddp-bf16": half_hook, "ddp-hook": gw.ddp_hook}.get(line)
        if hook is not None:
            self.model.register_comm_hook(None, hook)


class Gradwire(Alone):
    def begin(self):
        super().begin()
        self.optimizer = gw.DistributedOptimizer(self.optimizer, self.model.named_parameters(), strategy=self.line)

    def averages(self):
        self.optimizer.flush()
        return super().averages()

    def is_choosing(self):
        return self.optimizer.is_tuning()

    def end(self):
        self.optimizer.flush()
        self.optimizer.detach()
        super().end()


def way(model, line):
    return (Alone if line == "alone" else Ddp if line.startswith("ddp") else Gradwire)(model, line)


def stolen():
    """Seconds for which a hypervisor has kept this machine's processors from it."""
    with open("/proc/stat", encoding="ascii") as lines:
        return int(lines.readline().split()[8]) / os.sysconf("SC_CLK_TCK")


def spent(one, batch, steps):
    """Seconds of one step on the slowest rank, from the end of the step before, and of all processors; and which share
    of the machine was stolen."""
    begin, busy, kept = time.perf_counter(), time.process_time(), stolen()
    for _ in range(steps):
        one.step(*batch)
    took, busy, kept = time.perf_counter() - begin, time.process_time() - busy, stolen() - kept
    each = gw.allgather_object((took / steps, busy / steps, kept / took / os.cpu_count()))
    return max(e[0] for e in each), sum(e[1] for e in each), max(e[2] for e in each)


def turn(one, batch, seconds, averages):
    """Two steps do not count: the first one allocates, and the second may still wait for the first. If a step is as
    long as a turn, one step counts."""
    one.begin()
    torch.manual_seed(2 + gw.rank())  # of dropout
    one.step(*batch)
    averages[one.line] = one.averages()
    one.step(*batch)
    while one.is_choosing():
        one.step(*batch)
    took = spent(one, batch, 1)
    if took[0] < seconds:
        steps = round(seconds / took[0])
        one.step(*batch)
        took = spent(one, batch, steps)
    one.end()
    return took


def is_exact(line):
    return line.startswith(("schedule=", "arch=", "auto")) and "compress" not in line


def check(averages):
    """Of the last turns."""
    for line, mine in averages.items():
        if line != "alone" and any(other != mine for other in gw.allgather_object(mine)):
            sys.exit(f"{line}: the ranks have different averages")
        for (total, size), (other, _) in zip(mine, averages.get("ddp", ())):
            if is_exact(line) and not abs(total - other) <= 1e-4 * size:
                sys.exit(f"{line}: the averages are not those of ddp: {total} instead of {other}, of {size}")


def say(number, options, one, took, again):
    if gw.rank() == 0:
        print(f"turn {number + 1} of {options.turns}  {one.line}  {took[0]:.3f} s a step {again}({took[2]:.1%} of the machine "
              "stolen)", file=sys.stderr, flush=True)


def report(options, found):
    what = f"{options.pixels} x {options.pixels}" if options.model != "gpt" else f"{torch_models.LENGTH} words"
    print(f"# {options.model}, batch {options.batch} of {what}, {gw.size()} ranks, "
          f"{options.network}; torch {torch.__version__}, one thread a rank; median of {options.turns} turns")
    print(f"{'way':42} {'s a step':>9} {'lowest':>8} {'highest':>8} {'cpu s':>8} {'of ddp':>8}")
    for line, turns in found.items():
        times, busy, _ = zip(*turns)
        ratios = [ddp / took for (ddp, _, _), took in zip(found.get("ddp", ()), times)]
        ratio = f"{statistics.median(ratios):7.2f}x  {min(ratios):.2f} to {max(ratios):.2f}" if ratios else ""
        print(f"{line:42} {statistics.median(times):9.3f} {min(times):8.3f} {max(times):8.3f} "
              f"{statistics.median(busy):8.3f} {ratio}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="resnet50", help="gpt, or one of torchvision's")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--pixels", type=int, default=64, help="height and width of the pictures")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5, help="of a turn, at least one step")
    parser.add_argument("--again", type=int, default=6, help="how many turns may be repeated")
    parser.add_argument("--pin", action="store_true", help="a core for each rank, as far as there are, as hosts have")
    parser.add_argument("--network", default="one host", help="what it is, for the heading")
    parser.add_argument("ways", nargs="+")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.pin:  # before any other thread is
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[int(os.environ["RANK"]) % len(cores)]})
    gw.init()
    if os.path.exists("/sys/class/net/eth0"):
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "eth0" if gw.local_size() < gw.size() else "lo")
    dist.init_process_group("gloo", rank=gw.rank(), world_size=gw.size())
    torch.manual_seed(1)
    model = torch_models.make(options.model)
    ways = [way(model, line) for line in options.ways]
    torch.manual_seed(2 + gw.rank())
    batch = torch_models.batch(options.model, options.batch, options.pixels)
    found, averages, again = {line: [] for line in options.ways}, {}, options.again
    for number in range(options.turns):
        for one in ways[::-1] if number % 2 else ways:
            took = turn(one, batch, options.seconds, averages)
            while took[2] > STOLEN and again:
                say(number, options, one, took, "and again: ")
                again -= 1
                took = turn(one, batch, options.seconds, averages)
            say(number, options, one, took, "")
            found[one.line].append(took)
    check(averages)
    if gw.rank() == 0:
        report(options, found)
    dist.destroy_process_group()
    gw.shutdown()


main()
