"""Ranks are killed in the middle of training, and the others go on by gw.shrink(): the same bits on all of them, at
once and five steps later. Each case is a job of its own, of processes that are forked from this one. LOSSES: how many
jobs are hit at a random moment (default 20), TESTS: some of the other cases by name,
with semicolons between them."""
import faulthandler
import hashlib
import os
import random
import signal
import socket
import sys
import tempfile
import time
import traceback

import torch
import torch.nn.functional as F

import gradwire.torch as gw
from gradwire.torch import recovery

AFTER = 5  # steps that are made after the loss
STEPS = 4000
LIMIT = 240  # seconds for a case, which takes one or two where nothing else runs


class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(12, 300)
        self.norm = torch.nn.LayerNorm(300)
        self.second = torch.nn.Linear(300, 300)
        self.third = torch.nn.Linear(300, 40)
        self.last = torch.nn.Linear(40, 5)

    def forward(self, x):
        y = self.norm(torch.relu(self.first(x)))
        return self.last(torch.relu(self.third(torch.relu(self.second(y)))))


class Case:
    """ranks; victim and slow: ranks of the first job; moment: the call in which the victim is killed and in which the
    slow one waits until then, "any": at a random time; again: the rank that is killed while the others regroup."""

    def __init__(self, name, strategy, kind="sgd", moment="any", ranks=3, victim=2, slow=-1, again=-1, at=3, delay=0):
        self.name, self.strategy, self.kind, self.moment, self.ranks = name, strategy, kind, moment, ranks
        self.victim, self.slow, self.again, self.at, self.delay = victim, slow, again, at, delay


OPTIMISERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9),
    "adam": lambda p: torch.optim.Adam(p, lr=0.003),
}


def digest(value):
    """Of every bit of a nested value."""
    if isinstance(value, torch.Tensor):
        return hashlib.sha256(value.detach().contiguous().numpy().tobytes()).hexdigest()[:16]
    if isinstance(value, dict):
        return {str(key): digest(one) for key, one in sorted(value.items(), key=lambda item: str(item[0]))}
    return repr(value)


def alike(what, value):
    """The same on all ranks."""
    values = gw.allgather_object(value)
    assert all(one == values[0] for one in values), f"{what} differs: {values}"


class Rank:
    """One process of a case."""

    def __init__(self, case, rank, port, sign):
        self.case, self.me, self.sign, self.step = case, rank, sign, 0
        gw.init(case.strategy, rank=rank, size=case.ranks, master_addr="127.0.0.1", master_port=port, deadline=20)
        torch.manual_seed(1)
        self.model = Network()
        self.optimizer = gw.DistributedOptimizer(OPTIMISERS[case.kind](self.model.parameters()),
                                                 self.model.named_parameters())
        self.struck, self.handle, self.bsp = False, None, "delayed" not in case.strategy
        open(f"{sign}.{rank}", "w").close()
        self.arm()

    # ---- the fault ----

    def strike(self):
        """The victim dies; the slow one continues when the others must have noticed."""
        if self.struck or self.step != self.case.at:
            return
        if self.me == self.case.victim:
            time.sleep(0.15)  # the others progress as far as they can
            open(self.sign, "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
        if self.me == self.case.slow:
            self.struck = True
            while not os.path.exists(self.sign):
                time.sleep(0.01)
            time.sleep(0.15)

    def strike_in_backward(self, module, inputs, output):
        output.register_hook(lambda gradient: self.strike())

    def arm(self):
        moment, model, optimizer = self.case.moment, self.model, self.optimizer
        if moment == "backward":
            model.second.register_forward_hook(self.strike_in_backward)
        elif moment == "forward":
            model.second.register_forward_pre_hook(lambda module, inputs: self.strike())
        elif moment == "settle":
            settle = optimizer._settle

            def after_the_exchange():
                if self.me == self.case.victim:
                    settle()
                self.strike()
                settle()
            optimizer._settle = after_the_exchange
        if self.me == self.case.again:
            recovery.equalize = lambda *_: os.kill(os.getpid(), signal.SIGKILL)

    # ---- training ----

    def train(self, until):
        while self.step < until:
            generator = torch.Generator().manual_seed(self.step * 10 + gw.rank())
            x = torch.randn(8, 12, generator=generator)
            y = torch.randint(5, (8,), generator=generator)
            if self.case.moment == "backward":
                self.handle = gw.allreduce_async(x)
            self.optimizer.zero_grad()
            F.cross_entropy(self.model(x), y).backward()
            self.optimizer.step()
            if self.bsp:  # a step that runs behind takes the rate at any moment
                self.optimizer.param_groups[0]["lr"] *= 0.98
            if self.handle is not None:
                gw.synchronize(self.handle)
            if self.case.moment == "between":
                self.strike()
            if self.case.moment == "evaluation" and self.step == self.case.at:
                with torch.no_grad():
                    self.model.second.register_forward_pre_hook(lambda module, inputs: self.strike())
                    self.model(x)
                gw.allreduce(x)
            self.step += 1

    def held(self):
        """Bits of all parameters, and of the optimiser's state of them."""
        state = self.optimizer.state
        return {name: (digest(p), digest(state.get(p, {}))) for name, p in self.model.named_parameters()}

    def check_handle(self):
        """A call of the lost job is complete or has failed; it does not hang, and does not affect the new job."""
        try:
            self.handle is None or gw.synchronize(self.handle)
        except gw.GradwireError as error:
            assert error.lost, error

    def run(self):
        try:
            self.train(STEPS)
            raise AssertionError("nobody was lost")
        except gw.GradwireError as error:
            assert error.lost, error
        before = self.held()
        newest = gw.shrink()
        lost = 1 + (self.case.again >= 0)
        assert gw.size() == self.case.ranks - lost and gw.rank() < gw.size(), (gw.rank(), gw.size())
        after = self.held()
        alike("what ranks hold after shrink()", after)
        alike("the number of the next step and the rate", (self.optimizer.step_number(),
                                                           self.optimizer.param_groups[0]["lr"]))
        alike("the rank that has come furthest", newest)
        befores = gw.allgather_object(before)
        for name in before if self.bsp and lost == 1 else ():
            assert after[name] in [one[name] for one in befores], f"{name} is what no rank had"
        if any(one != befores[0] for one in befores):
            open(self.sign + ".differed", "w").close()
        self.check_handle()
        self.step = gw.broadcast_object(self.step, newest)
        begun = self.optimizer.step_number()
        self.train(self.step + AFTER)
        self.optimizer.flush()
        assert self.optimizer.step_number() == begun + AFTER, (self.optimizer.step_number(), begun)
        alike("what ranks hold after five more steps", self.held())
        assert self.held() != after
        gw.shutdown()


def child(case, rank, port, sign):
    faulthandler.dump_traceback_later(LIMIT - 5)
    try:
        Rank(case, rank, port, sign).run()
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def job(case, directory):
    """Runs the case; returns whether ranks differed before they regrouped."""
    port, sign = free_port(), os.path.join(directory, case.name.replace(" ", "-"))
    pids = []
    for rank in range(case.ranks):
        pid = os.fork()
        if pid == 0:
            child(case, rank, port, sign)
        pids.append(pid)
    until, codes = time.monotonic() + LIMIT, {}
    if case.moment == "any":
        while not all(os.path.exists(f"{sign}.{r}") for r in range(case.ranks)) and time.monotonic() < until:
            time.sleep(0.001)
        time.sleep(case.delay)
        os.kill(pids[case.victim], signal.SIGKILL)
    while len(codes) < len(pids) and time.monotonic() < until:
        for rank in set(range(case.ranks)) - set(codes):
            pid, status = os.waitpid(pids[rank], os.WNOHANG)
            if pid:
                codes[rank] = status
        time.sleep(0.01)
    for rank in set(range(case.ranks)) - set(codes):
        os.kill(pids[rank], signal.SIGKILL)
        os.waitpid(pids[rank], 0)
    for rank in range(case.ranks):
        expected = signal.SIGKILL if rank in (case.victim, case.again) else 0
        assert codes.get(rank) == expected, f"{case.name} ({case.strategy}): rank {rank} ended with {codes.get(rank)}"
    return os.path.exists(sign + ".differed")


CASES = [
    Case("after the exchange, some have updated", "schedule=wfbp", "adam", "settle", slow=1),
    Case("between two updates", "schedule=dear", "sgd", "forward", slow=1),
    Case("in backward", "schedule=p3 compress=topk:ratio=0.1", "sgd", "backward", slow=0),
    Case("in evaluation", "schedule=dear compress=powersgd", "adam", "evaluation", ranks=4, victim=0, slow=2),
    Case("between step and forward", "schedule=wfbp sync=delayed", "adam", "between", slow=1),
    Case("over servers", "schedule=wfbp arch=ps", "sgd", "settle", slow=1),
    Case("before the first step", "schedule=dear", "adam", "backward", slow=0, at=0),
    Case("another while they come together", "schedule=dear", "adam", "forward", ranks=4, victim=1, slow=2, again=3),
]


def random_case(number):
    draw = random.Random(number)
    sync = draw.choice(("bsp", "bsp", "delayed:warmup=0"))
    line = (f"schedule={draw.choice(('wfbp', 'wfbp:fuse=2000', 'dear', 'dear:fuse=2000', 'p3:slice=16K'))} sync={sync} "
            f"compress={draw.choice(('none', 'topk:ratio=0.1', 'powersgd'))} transport={draw.choice(('auto', 'tcp'))}")
    ranks = draw.choice((3, 4))
    return Case(f"at some time {number}", line, draw.choice(("sgd", "adam")), ranks=ranks, victim=draw.randrange(ranks),
                delay=draw.random() * 0.5)


def main():
    torch.set_num_threads(1)
    wanted, losses = os.environ.get("TESTS", "").split(";"), int(os.environ.get("LOSSES", "20"))
    first = int(os.environ.get("FIRST", "0"))
    cases = [case for case in CASES if not wanted[0] or case.name in wanted]
    passed = 0
    with tempfile.TemporaryDirectory() as directory:
        for case in cases + [random_case(first + n) for n in range(losses)]:
            differs = job(case, directory)
            passed += 1
            print(f"ok   {case.name}: {case.strategy}, {case.kind}{', ranks differed' if differs else ''}", flush=True)
    print(f"{passed} passed, 0 failed", flush=True)


main()
