"""The recording of a job (docs/reference/recording.md): its steps, and the layers of its models by the names of their modules.
Modules are hooked only while a recording runs. On an accelerator the times are those at which work was handed to the
device.

A step lasts from the end of one optimizer.step() to the end of the next, by the clock; with ddp_hook from the last
bucket of a backward pass to that of the next. Of several optimisers the first counts, until another one makes two steps
in which it makes none. The first step begins with the first forward pass."""
import os
import weakref

from gradwire._library import check, lib
from gradwire.torch import layers


def start(job, timeline, capture):
    files = [None if one is None else os.fspath(one).encode() for one in (timeline, capture)]
    check(lib.gw_trace_start(job.comm, *files), job.comm)
    watch(job)


def stop(job):
    unwatch(job)
    check(lib.gw_trace_stop(job.comm), job.comm)


def watch(job):
    """Reports the layers to the recording, if there is one."""
    if lib.gw_trace_runs(job.comm) and job.layers is None:
        job.layers = Layers(job)


def unwatch(job):
    if job.layers is not None:
        job.layers.watch.remove()
        job.layers = None


class Layers:
    """Steps, and layers of all models of the process. A model is known when it is called for the first time."""

    def __init__(self, job):
        self.job, self.stepping = job, False  # a reference cycle until unwatch()
        self.leading, self.others = None, weakref.WeakSet()  # whose steps count; who has ended one since
        self.names = weakref.WeakKeyDictionary()  # module: its name in bytes, None where it is no layer
        self.watch = layers.Watch(self.enter, self.report)

    def begin_step(self):
        """A step is under way: it begins now if it is the first. Without an optimiser of the whole job each reducer
        records steps of its own."""
        if not self.stepping and (self.job.living() or self.job.hooks):
            self.stepping = True
            lib.gw_trace_step_begin(self.job.comm)

    def end_step(self, one):
        """A step of an optimiser, of a state of ddp_hook or of a hook without one (the job) ends."""
        leading = self.leading and self.leading()
        if leading not in (None, one) and one not in self.others:
            self.others.add(one)
            return
        self.leading, self.stepping = weakref.ref(one), True
        self.others.clear()
        lib.gw_trace_step_end(self.job.comm, one.step_number() - 1, one.strategy_line())

    def enter(self, module):
        """The layer of a module whose forward pass begins."""
        self.begin_step()
        return self.name(module)

    def name(self, module):
        try:
            return self.names[module]
        except KeyError:
            self.know(module)
            return self.names[module]

    def know(self, root):
        prefix = self.prefix(root)
        for name, module in root.named_modules():
            name = (prefix + name).strip(".") or type(root).__name__
            self.names.setdefault(module, name.encode() if layers.is_layer(module) else None)

    def prefix(self, root):
        """The prefix of a submodule that is called by itself, from the optimisers' parameter names."""
        known = {s.parameter: s.name for optimizer in self.job.living() for s in optimizer._slots}
        for name, parameter in root.named_parameters():
            whole = known.get(parameter, "")
            if whole.endswith("." + name):
                return whole[:-len(name)]
        return ""

    def report(self, name, backward, began, ended):
        one = self.leading and self.leading() or next(iter(self.job.living() + self.job.hooks), self.job)
        lib.gw_trace_layer(self.job.comm, name, backward, one.step_number(), began, ended)
