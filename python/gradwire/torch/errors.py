"""Exceptions by Horovod's names, and the classes that its API raises for wrong arguments.

HorovodInternalError is GradwireError itself: what Horovod raises where a collective fails. `.lost` says whether the
others can go on without the rank that was lost."""
from gradwire._library import GradwireError

HorovodInternalError = GradwireError  # Horovod's name of it


class ArgumentError(GradwireError, ValueError):
    """A wrong argument, where Horovod raises ValueError. It fails only the call."""


class NotSupportedError(GradwireError, NotImplementedError):
    """Something that Horovod knows and gradwire does not, or that neither has."""

    def __init__(self, sentence):
        super().__init__(sentence, "UNSUPPORTED")


class HostsUpdatedInterrupt(RuntimeError):
    """Horovod raises it from State.commit() where hosts were added. No call raises it here: a job changes only when a
    rank is lost. Scripts that catch it run."""

    def __init__(self, skip_sync=False):
        super().__init__("the hosts of the job have changed")
        self.skip_sync = skip_sync
