"""Runs many cases in one job, so that torch is imported once. A case that raises is reported with its sentence, and the
next one follows. The ranks tell each other how a case ended through a store of torch, beside the communication that is
tested: where a rank has failed and another still waits for it, or a case takes too long, the job ends with its name."""
import faulthandler
import gc
import itertools
import os
import sys
import threading
import time
import traceback

import torch
import torch.distributed as dist

import gradwire.torch as gw

NEGATIVE = os.environ.get("PRODUCT_NEGATIVE") == "1"
DEADLINE_S = 240  # of a case: inductor compiles for long on a busy machine
GRACE_S = 15  # for the others, after a rank has failed in a case
HERE = os.path.dirname(__file__)
MUST_FAIL = 0.95  # of the cases, without communication


class Cases:
    """The cases of a family by name, in the order of their definition."""

    def __init__(self):
        self.functions = {}

    def case(self, **axes):
        """Decorates a function that is a case for each combination of the values, which are its arguments."""
        def add(function):
            for values in itertools.product(*axes.values()):
                name = " ".join([function.__name__.replace("_", " "), *map(str, values)])
                assert name not in self.functions, name
                self.functions[name] = lambda values=values: function(**dict(zip(axes, values)))
            return function
        return add

    def wanted(self):
        words = os.environ.get("TESTS", "").split()
        return {n: f for n, f in self.functions.items() if not words or any(w in n for w in words)}


class Watch:
    """A thread that ends this process where the case does not end."""

    def __init__(self, store, rank):
        self.store, self.rank, self.case = store, rank, None
        threading.Thread(target=self.run, daemon=True).start()

    def begin(self, number, name):
        self.case = number, name, time.monotonic()

    def end(self):
        self.case = None

    def run(self):
        failed_since = None
        while True:
            time.sleep(0.5)
            case = self.case
            if case is None or not self.store.check([f"failed {case[0]}"]):
                failed_since = None
            else:
                failed_since = failed_since or time.monotonic()
            if case is not None:
                self.look(case, failed_since)

    def look(self, case, failed_since):
        number, name, begun = case
        now = time.monotonic()
        if now - begun > DEADLINE_S:
            self.stop(name, f"rank {self.rank} has not ended after {DEADLINE_S} s")
        if failed_since and now - failed_since > GRACE_S and self.case == case:
            self.stop(name, f"{self.store.get(f'failed {number}').decode()}; rank {self.rank} still waits {GRACE_S} s "
                            "later")

    def stop(self, name, sentence):
        print(f"FAIL {name}: {sentence}; the cases after it have not run", flush=True)
        faulthandler.dump_traceback(sys.stderr)
        os._exit(1)


def attempt(function):
    """The sentence of the error that the case raised, or an empty one."""
    try:
        function()
        return ""
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # torch's CheckpointException is no Exception
        if os.environ.get("TRACEBACKS"):
            traceback.print_exc()
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        where = traceback.extract_tb(error.__traceback__)
        line = next(f.lineno for f in reversed(where) if f.filename.startswith(HERE) and "values.py" not in f.filename)
        return f"{type(error).__name__}: {' '.join(lines)[:300]} (line {line})"


class Runner:
    """The ranks of this job and the store through which they tell each other how cases end."""

    def __init__(self):
        gw.init()
        self.rank, self.size = gw.rank(), gw.size()
        assert self.size > 1, "the product needs two ranks or more"
        master = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False) if self.rank == 0 else None
        port = gw.broadcast_object(master.port if master else None, 0)
        self.store = master or dist.TCPStore("127.0.0.1", port, is_master=False)
        self.watch = Watch(dist.TCPStore("127.0.0.1", port, is_master=False), self.rank)

    def run(self, cases):
        """The names of the cases that passed on all ranks, and of the others."""
        passed, failed = [], []
        gc.freeze()  # what the imports made, so that collecting after each case is quick
        for number, (name, function) in enumerate(cases.items()):
            torch.manual_seed(1)
            begun = time.monotonic()
            self.watch.begin(number, name)
            sentence = attempt(function)
            gc.collect()  # optimisers of the case go at the same point on all ranks
            self.watch.end()
            sentences = self.ended(number, sentence)
            (failed if any(sentences) else passed).append(name)
            self.report(name, sentences, time.monotonic() - begun)
            if any(sentences) and not NEGATIVE:
                gw.shutdown()  # the case may have ended the job of libgradwire: another one
                gw.init()
        return passed, failed

    def ended(self, number, sentence):
        """How each rank has ended the case."""
        if sentence:
            self.store.set(f"failed {number}", f"rank {self.rank}: {sentence}")
        self.store.set(f"ended {number} {self.rank}", sentence)
        return [self.store.get(f"ended {number} {r}").decode() for r in range(self.size)]

    def say(self, text):
        if self.rank == 0:
            print(text, flush=True)

    def report(self, name, sentences, seconds):
        if not any(sentences):
            self.say(f"ok   {name} ({seconds:.2f} s)")
            return
        rank = next(r for r, s in enumerate(sentences) if s)
        others = sentences.count("")
        self.say(f"FAIL {name}: rank {rank}: {sentences[rank]}{f' ({others} ranks passed)' if others else ''}")

    def verdict(self, passed, failed):
        """The exit code. Nobody leaves before all have read the store of the first rank."""
        part = len(failed) / max(1, len(passed) + len(failed))
        if NEGATIVE:
            self.say(f"without communication {len(failed)} of {len(passed) + len(failed)} cases failed "
                     f"({100 * part:.1f} %); passed: {', '.join(passed) or 'none'}")
            code = 0 if part >= MUST_FAIL else 1
        else:
            self.say(f"{len(passed)} passed, {len(failed)} failed")
            code = 1 if failed or not passed else 0
        gw.barrier()
        return code
