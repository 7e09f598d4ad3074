"""The recording of a job (docs/seeing.md), with the layers of its models by the names of their modules. Modules are
hooked only while a recording runs. On an accelerator the times are those at which work was handed to the device."""
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
    """Layers of all models of the process. A model is known when it is called for the first time."""

    def __init__(self, job):
        self.job = job  # a reference cycle until unwatch()
        self.names = weakref.WeakKeyDictionary()  # module: its name in bytes, None where it is no layer
        self.watch = layers.Watch(self.name, self.report)

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
        lib.gw_trace_layer(self.job.comm, name, backward, self.job.step_number(), began, ended)
