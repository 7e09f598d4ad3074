"""How a call runs: at once or in the background, alone or in a coalescing block."""
import collections

from gradwire.torch.process_group import watch
from gradwire.torch.process_group.untraced import untraced
from gradwire.torch.process_group.works import Apart, Together, Waiter, Work

RECENT, SMALL = 256, 128  # works that are kept, and how many elements such a one has at most


@untraced
class Issuing:
    """`batch` are the works of a coalescing block. `recent` keeps small works for a while: one that only C++ refers to
    loses its Python half and with it its methods, and Join hands such a work to DDP's reducer."""

    def attach(self, communicator):
        self.communicator, self.batch, self.recent = communicator, None, collections.deque(maxlen=RECENT)
        self.waiter, self.apart = Waiter(f"gradwire rank {communicator.rank}"), Apart()

    def issue(self, doing, calls, results, opts, buffers, source=None):
        """Runs the calls in this thread if torch waits for them anyway; else starts them. `source` is given for
        messages, and receives where they come from."""
        communicator, messages = self.communicator, source is not None
        communicator.count(messages)
        deadline = seconds(opts)
        if deadline:
            for call in calls:
                call.deadline_s = deadline
        then = buffers.spread if buffers.copies else None
        work = Work(communicator, doing, results, buffers.keep, then, self.apart if messages else self.waiter)
        work.source = source
        with watch.call(self, work):
            if self.batch is None and not messages and not getattr(opts, "asyncOp", True):
                communicator.run(calls, doing)
                work.finish()
                work.wait()
            else:
                communicator.start(calls, work)
                self.remember(work)
        return work

    def remember(self, work):
        if len(work.results) == 1 and work.results[0].numel() <= SMALL:
            self.recent.append(work)
        if self.batch is not None:
            self.batch.append(work)

    def at_once(self, doing, results, function):
        """A call of several steps, which is complete when this returns."""
        self.communicator.count(False)
        work = Work(self.communicator, doing, results)
        with watch.call(self, work):
            function()
            work.finish()
        return work

    def together(self, doing, works, opts):
        work = Together(self.communicator, doing, works, self.waiter)
        if not getattr(opts, "asyncOp", True):
            work.wait()
        return work

    def start_coalescing(self, *_):
        self.batch = []

    def end_coalescing(self, *_):
        works, self.batch = self.batch or [], None
        return Together(self.communicator, "coalesced", works, self.waiter)

    _start_coalescing, _end_coalescing = start_coalescing, end_coalescing  # names of other versions of torch


def seconds(opts):
    """The timeout of one call; 0: the group's."""
    timeout = getattr(opts, "timeout", None)
    return max(timeout.total_seconds(), 0.0) if timeout is not None else 0.0
