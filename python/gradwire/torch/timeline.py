"""The recording of a job (docs/seeing.md), with the layers of its models by the names of their modules. Nothing is
hooked where nothing is recorded. On an accelerator the times are those at which work was handed to the device."""
import os
import weakref

from gradwire._library import check, lib
from gradwire.torch import layers


def start(home, timeline, capture):
    files = [None if one is None else os.fspath(one).encode() for one in (timeline, capture)]
    check(lib.gw_trace_start(home.comm, *files), home.comm)
    watch(home)


def stop(home):
    unwatch(home)
    check(lib.gw_trace_stop(home.comm), home.comm)


def watch(home):
    """Tells the recording, if there is one, of the layers."""
    if lib.gw_trace_runs(home.comm) and home.layers is None:
        home.layers = Layers(home)


def unwatch(home):
    if home.layers is not None:
        home.layers.watch.remove()
        home.layers = None


class Layers:
    """Layers of all models of the process. A model is known when it is called for the first time."""

    def __init__(self, home):
        self.home = home  # and that has this one, until unwatch()
        self.names = weakref.WeakKeyDictionary()  # module: its name in bytes, None where it is no layer
        self.watch = layers.Watch(self.name, self.tell)

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
        """Where only a part of a model is called: its place, as optimisers know their parameters."""
        known = {s.parameter: s.name for optimizer in self.home.living() for s in optimizer._slots}
        for name, parameter in root.named_parameters():
            whole = known.get(parameter, "")
            if whole.endswith("." + name):
                return whole[:-len(name)]
        return ""

    def tell(self, name, backward, began, ended):
        lib.gw_trace_layer(self.home.comm, name, backward, self.home.step_number(), began, ended)
