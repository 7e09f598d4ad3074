#!/usr/bin/env python3
"""One rank of train_peers.py: seconds that a training step takes in several ways, in turns, on the same model.

    gradwire run --lab hosts=2,rate=1gbit -- python3 bench/train_peers_rank.py --model resnet18 --out FILE ddp auto

A way is one of `ways()` below or a strategy for DistributedOptimizer. Every way trains its own copy of the model for the
whole run, so only its first turn warms up and, with strategy=auto, chooses.

A turn is one step that does not count and some that count, from the end of one step to the end of another: so a schedule
that waits in the next forward pass pays for all its waiting. The time of a step is that of the slowest rank. Every other
turn runs backwards, because a machine that has worked for a while may be slower. A turn in which the hypervisor or
other processes took processor time, or in which auto tried strategies, is repeated, --again times at most; the last one
counts. Rank 0 appends a line of JSON to FILE for every turn of a way.

After each turn all ranks must have the same weights, bit for bit. With --check exact ways repeat one step from the
first weights, and the average gradient must be DDP's within 1e-4 of its norm."""
import argparse
import contextlib
import copy
import ctypes
import hashlib
import itertools
import json
import os
import pathlib
import socket
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "python"))
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch_models  # noqa: E402
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

import gradwire.torch as gw  # noqa: E402

STOLEN = 0.005    # share of the machine from which on a turn does not count; undisturbed it is 0 to 0.001
OTHERS = 0.1      # the same of what other processes used
HERTZ, KERNEL = os.sysconf("SC_CLK_TCK"), "2"  # the parent of the kernel's threads
CLOSE = 1e-4      # distance of two exact averages, of their norm
CHOOSING_MOST = 400  # steps
BATCHES = 64
CLONE_NEWUTS = 0x04000000


def half_hook(_, bucket):
    """bf16_compress_hook, which torch refuses on the CPU: each rank divides, sums are of bf16."""
    half = bucket.buffer().to(torch.bfloat16).div_(dist.get_world_size())
    return dist.all_reduce(half, async_op=True).get_future().then(lambda sums: bucket.buffer().copy_(sums.value()[0]))


def put(tensors, values):
    for tensor, value in zip(tensors, values):
        tensor.copy_(value)


class Alone:
    """Nothing is sent. Also what the others have in common."""
    security, exact = "", False
    warm_steps = 2  # the first one allocates, and DDP makes its buckets anew in the second

    def __init__(self, name, model):
        self.name, self.model, self.steps = name, model, 0
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

    def begin(self):
        """Before every turn."""

    def step(self, x, y):
        self.optimizer.zero_grad()
        torch.nn.functional.cross_entropy(self.model(x), y).backward()
        self.optimizer.step()
        self.steps += 1

    def end(self):
        """After every turn: completes whatever is under way."""

    def average(self, weights, batch):
        """The average gradient of a batch of each rank, at these weights; then everything is as it was."""
        kept = [p.detach().clone() for p in self.model.parameters()]
        moments = [self.optimizer.state[p]["momentum_buffer"] for p in self.model.parameters()]
        kept_moments = [m.clone() for m in moments]
        rates = [group["lr"] for group in self.optimizer.param_groups]
        with torch.no_grad():
            put(self.model.parameters(), weights)
            for moment in moments:
                moment.zero_()
        for group in self.optimizer.param_groups:
            group["lr"] = 0
        self.step(*batch)
        self.end()
        found = torch.cat([m.flatten() for m in moments])
        with torch.no_grad():
            put(self.model.parameters(), kept)
            put(moments, kept_moments)
        for group, rate in zip(self.optimizer.param_groups, rates):
            group["lr"] = rate
        return found

    def is_choosing(self):
        """Its first steps are not like the later ones."""
        return False

    def strategy(self):
        """What it runs as, where its name does not say it."""
        return ""


class Ddp(Alone):
    """DistributedDataParallel. Buffers of normalisation are left alone, as by the others."""
    security, exact = "clear", True

    def __init__(self, name, model, hook=None, state=None, group=None):
        super().__init__(name, model)
        self.model = DistributedDataParallel(model, broadcast_buffers=False, process_group=group)
        if hook is not None:
            self.model.register_comm_hook(state, hook)
            self.warm_steps = 4  # those that power_hook compresses are the third and the following ones
            self.exact = hook is gw.ddp_hook
        if group is not None:
            self.security = gradwire_security("")


def power_hook(states, bucket):
    """torch's PowerSGD hook, with a group for each bucket. In one group the collectives of several buckets begin in the
    order in which Gloo's threads come to them; it differs between the ranks, and the job dies."""
    state = states[bucket.index()]
    future = powerSGD_hook.powerSGD_hook(state, bucket)
    if not bucket.is_last():  # only the last one of a state counts
        state.iter += 1
    return future


def power_ddp(name, model):
    """Rank 4; everything else as it comes, but that it begins in the third step instead of the thousandth."""
    buckets = sum(p.numel() for p in model.parameters()) * 4 // (25 << 20) + 3
    states = [powerSGD_hook.PowerSGDState(dist.new_group(), matrix_approximation_rank=4, start_powerSGD_iter=2)
              for _ in range(buckets)]
    return Ddp(name, model, power_hook, states)


def gradwire_security(line):
    """What docs/security.md says of a line, on the hosts of this job."""
    if gw.local_size() == gw.size():
        return "clear"
    words = f"{os.environ.get('GRADWIRE_STRATEGY', '')} {line}".split()
    asked = [word.partition("security=")[2].split(",")[0] for word in words if "security=" in word]
    return asked[-1] if asked and asked[-1] != "auto" else "mac"


class Gradwire(Alone):
    """A strategy; `decided` is the file of what auto has chosen in an earlier run, if there was one."""

    def __init__(self, name, model, decided):
        super().__init__(name, model)
        self.decided, self.security = decided, gradwire_security(name)
        self.optimizer = gw.DistributedOptimizer(self.optimizer, model.named_parameters(), strategy=name)

    @property
    def exact(self):
        return not any(word in self.name for word in ("compress=", "accuracy=safe", "sync="))

    def step(self, x, y):
        with named_decisions(self.decided if self.steps == 0 else None):  # the first step commits
            super().step(x, y)

    def end(self):
        self.optimizer.flush()

    def is_choosing(self):
        return self.optimizer.is_tuning() and self.steps < CHOOSING_MOST

    def strategy(self):
        return self.optimizer.strategy_line().decode()


@contextlib.contextmanager
def named_decisions(path):
    if path is not None:
        os.environ["GRADWIRE_DECISIONS"] = str(path)
    yield
    os.environ.pop("GRADWIRE_DECISIONS", None)


def shorten(path):
    """A run goes on with what an earlier one chose in the end."""
    lines = path.read_text(encoding="utf-8").splitlines()
    last = [line for line in lines if line.startswith("step ")][-1]
    path.write_text("\n".join(lines[:2] + ["step 0 " + last.split(" ", 2)[2]]) + "\n", encoding="utf-8")


class Horovod(Alone):
    """Over Gloo, without its launcher. Its background thread talks to the other ranks all the time, so it only lives for
    a turn."""
    security, exact = "clear", True

    def __init__(self, name, model):
        super().__init__(name, model)
        self.server = None

    def begin(self):
        import horovod.torch as hvd
        own_hostname()
        from horovod.runner.common.util.hosts import get_host_assignments, parse_hosts
        from horovod.runner.http.http_server import RendezvousServer
        here = None
        if gw.rank() == 0:
            self.server = RendezvousServer()
            port = self.server.start()
            hosts = ",".join(f"host{r}:1" for r in range(gw.size()))
            self.server.init(get_host_assignments(parse_hosts(hosts), gw.size()))
            here = (os.environ.get("MASTER_ADDR", "127.0.0.1"), port)
        address, port = gw.broadcast_object(here)
        r, n = str(gw.rank()), str(gw.size())
        os.environ.update(HOROVOD_RANK=r, HOROVOD_SIZE=n, HOROVOD_LOCAL_RANK="0", HOROVOD_LOCAL_SIZE="1",
                          HOROVOD_CROSS_RANK=r, HOROVOD_CROSS_SIZE=n, HOROVOD_HOSTNAME=f"host{r}",
                          HOROVOD_GLOO_RENDEZVOUS_ADDR=address, HOROVOD_GLOO_RENDEZVOUS_PORT=str(port),
                          HOROVOD_GLOO_IFACE=os.environ.get("GLOO_SOCKET_IFNAME", "lo"), HOROVOD_CONTROLLER="gloo",
                          HOROVOD_CPU_OPERATIONS="gloo")
        hvd.init()
        if not self.steps:
            self.optimizer = hvd.DistributedOptimizer(self.optimizer, self.model.named_parameters())

    def end(self):
        import horovod.torch as hvd
        hvd.shutdown()
        gw.barrier()
        if self.server is not None:
            self.server.stop()
            self.server = None


def own_hostname():
    """Horovod binds its process sets to what the hostname resolves to, whatever HOROVOD_GLOO_IFACE says. So this thread
    and those that it starts get a hostname of their own: the address by which the others reach it."""
    master = os.environ.get("MASTER_ADDR", "127.0.0.1")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((master, 1))
        address = probe.getsockname()[0]
    if gw.local_size() < gw.size() and ctypes.CDLL(None).unshare(CLONE_NEWUTS) == 0:
        socket.sethostname(address)


def ways():
    """Those with a name of their own."""
    return {
        "alone": Alone,
        "ddp": Ddp,
        "ddp-fp16": lambda name, model: Ddp(name, model, default_hooks.fp16_compress_hook),
        "ddp-bf16": lambda name, model: Ddp(name, model, half_hook),
        "ddp-powersgd": power_ddp,
        "ddp-group": lambda name, model: Ddp(name, model, group=dist.new_group(backend="gradwire")),
        "ddp-hook": lambda name, model: Ddp(name, model, gw.ddp_hook),
        "horovod": Horovod,
    }


def make_way(name, first, decisions):
    model = copy.deepcopy(first)
    if name in ways():
        return ways()[name](name, model)
    file = decisions / (name.replace(" ", "_").replace("/", "_") + ".txt") if decisions else None
    if file is not None and gw.rank() == 0 and file.exists():
        shorten(file)
    return Gradwire(name, model, file)


def stolen():
    """Seconds for which a hypervisor has kept this machine's processors from it."""
    with open("/proc/stat", encoding="ascii") as lines:
        return int(lines.readline().split()[8]) / HERTZ


def used_by_others():
    """Processor seconds of all other processes and of the children that they have waited for. The kernel's threads do not
    count: they work for the packets of this job too."""
    total = 0
    for folder in os.listdir("/proc"):
        with contextlib.suppress(OSError):
            if folder.isdigit() and int(folder) != os.getpid():
                with open(f"/proc/{folder}/stat", encoding="utf-8", errors="replace") as line:
                    fields = line.read().rpartition(")")[2].split()
                total += sum(map(int, fields[11:15])) if fields[1] != KERNEL and folder != KERNEL else 0
    return total / HERTZ


def spent(one, batches, steps):
    """Seconds of one step on the slowest rank, from the end of the step before, and of all processors; and which shares
    of the machine, on which all ranks are, were stolen and used by others."""
    others, kept, busy, begin = used_by_others(), stolen(), time.process_time(), time.perf_counter()
    for _ in range(steps):
        one.step(*next(batches))
    took, busy = time.perf_counter() - begin, time.process_time() - busy
    each = gw.allgather_object((took, busy, stolen() - kept))
    took, all_busy = max(e[0] for e in each), sum(e[1] for e in each)
    others = max(gw.allgather_object(used_by_others() - others - (all_busy - busy)))
    whole = took * os.cpu_count()
    return took / steps, all_busy / steps, max(e[2] for e in each) / whole, max(others, 0) / whole


def warm_up(one, batches):
    begin = time.perf_counter()
    one.begin()
    for _ in range(one.warm_steps):
        one.step(*next(batches))
    choose(one, batches)
    one.end()
    say(f"{one.name}: {one.steps} steps to warm up, {time.perf_counter() - begin:.1f} s  {one.strategy()}")


def choose(one, batches):
    """Returns whether anything was to be chosen."""
    chose = one.is_choosing()
    while one.is_choosing():
        one.step(*next(batches))
    return chose


def turn(one, batches, seconds):
    """Also whether strategies were tried in it."""
    one.begin()
    gw.barrier()
    choose(one, batches)
    one.step(*next(batches))
    took = spent(one, batches, 1)
    more = round(seconds / took[0])
    if more > 1:
        took = spent(one, batches, more)
    chose = choose(one, batches)
    one.end()
    return took, chose


def undisturbed(one, batches, options, number):
    for attempt in range(options.again + 1):
        took, chose = turn(one, batches, options.seconds)
        disturbed = took[2] > STOLEN or took[3] > OTHERS or chose
        again = ", and again" if disturbed and attempt < options.again else ""
        say(f"turn {number + 1}  {one.name}  {took[0]:.3f} s a step, {took[1]:.3f} cpu s; {took[2]:.1%} of the machine "
            f"stolen, {took[3]:.0%} used by others{', auto chose' if chose else ''}{again}")
        if not again:
            return took


def check_weights(one):
    """Also that they are finite."""
    digest = hashlib.blake2b()
    for parameter in one.model.parameters():
        if not torch.isfinite(parameter).all():
            sys.exit(f"{one.name}: the weights are not finite")
        digest.update(parameter.detach().numpy().data)
    if len(set(gw.allgather_object(digest.hexdigest()))) > 1:
        sys.exit(f"{one.name}: the ranks have different weights")


def check_averages(all_ways, batch, weights):
    """Of exact ways; returns their distances from DDP's, of the norm."""
    if not any(one.name == "ddp" for one in all_ways):
        return {}
    offs, reference = {}, None
    for one in sorted((one for one in all_ways if one.exact), key=lambda one: one.name != "ddp"):
        one.begin()
        choose(one, itertools.repeat(batch))
        average = one.average(weights, batch)
        reference = average if reference is None else reference
        offs[one.name] = off = float((average - reference).norm() / reference.norm())
        if not off <= CLOSE:
            sys.exit(f"{one.name}: the averages are not those of ddp: they differ by {off:.1e} of the norm")
    return offs


def say(words):
    if gw.rank() == 0:
        print(words, file=sys.stderr, flush=True)


def write(options, one, number, took, off):
    if gw.rank() == 0:
        what = {"turn": number, "way": one.name, "step_s": took[0], "cpu_s": took[1], "stolen": took[2],
                "others": took[3], "off": off, "security": one.security, "strategy": one.strategy(),
                "torch": torch.__version__}
        with open(options.out, "a", encoding="utf-8") as out:
            out.write(json.dumps({**json.loads(options.cell), **what}) + "\n")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="resnet18", help="gpt, or one of torchvision's")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--pixels", type=int, default=64, help="height and width of the pictures")
    parser.add_argument("--first", type=int, default=0, help="number of the first turn")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2, help="of a turn, at least one step that counts")
    parser.add_argument("--again", type=int, default=1, help="how often a turn of a way may be repeated")
    parser.add_argument("--until", type=float, default=0, help="begin no turn after this time (time.time()); 0: no such")
    parser.add_argument("--pin", action="store_true", help="a core for each rank, as far as there are, as hosts have")
    parser.add_argument("--check", action="store_true", help="compare the averages of exact ways with DDP's")
    parser.add_argument("--cell", default="{}", help="JSON that each line of the output repeats")
    parser.add_argument("--decisions", type=pathlib.Path, help="folder of what auto has chosen")
    parser.add_argument("--out", required=True)
    parser.add_argument("ways", nargs="+")
    return parser.parse_args()


def run(options):
    torch.manual_seed(1)
    model = torch_models.make(options.model)
    weights = [p.detach().clone() for p in model.parameters()]
    all_ways = [make_way(name, model, options.decisions) for name in options.ways]
    torch.manual_seed(2 + gw.rank())
    some = [torch_models.batch(options.model, options.batch, options.pixels) for _ in range(BATCHES)]
    for one in all_ways:
        warm_up(one, itertools.cycle(some))
    offs = check_averages(all_ways, some[0], weights) if options.check else {}
    for number in range(options.first, options.first + options.turns):
        if options.until and gw.broadcast_object(time.time() > options.until):
            return
        for one in all_ways[::-1] if number % 2 else all_ways:
            took = undisturbed(one, itertools.cycle(some[number % BATCHES:] + some[:number % BATCHES]), options, number)
            if one.security:
                check_weights(one)
            write(options, one, number, took, offs.get(one.name))


def main():
    options = arguments()
    torch.set_num_threads(1)
    if options.pin:  # before any other thread is
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[int(os.environ["RANK"]) % len(cores)]})
    gw.init()
    if os.path.exists("/sys/class/net/eth0"):
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "eth0" if gw.local_size() < gw.size() else "lo")
    dist.init_process_group("gloo", rank=gw.rank(), world_size=gw.size())
    run(options)
    dist.destroy_process_group()
    gw.shutdown()


main()
