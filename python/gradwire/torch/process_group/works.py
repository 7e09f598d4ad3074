"""A call under way, as torch's Work. Any thread may wait for it; one at a time waits for its requests, as the library
wants. Its future completes without anybody's call: a thread waits for the requests once a future was asked for."""
import datetime
import queue
import threading
import time

import torch
import torch.distributed as dist

from gradwire._library import GradwireError, lib, test
from gradwire.torch.process_group.untraced import untraced

NO_TIMEOUT = datetime.timedelta(0)
FIRST_SLEEP, LONGEST_SLEEP = 20e-6, 1e-3  # seconds between two looks at a request that has a timeout
LAST_CALLBACK = 30  # seconds that the end of a group waits for callbacks of futures


@untraced
class Work(dist._Work):
    """`keep` are objects whose memory the requests use. `then` runs when these are complete and before anybody learns
    of it: it spreads results over tensors. `ended` learns of the end of the call, with its error or None."""

    def __init__(self, communicator, doing, results, keep=(), then=None, waiter=None):
        super().__init__()
        self.communicator, self.doing, self.results = communicator, doing, results
        self.keep, self.then, self.waiter, self.ended = keep, then, waiter, None
        self.requests, self.turn, self.done, self.error = [], threading.Lock(), False, None
        self.future, self.unset, self.source, self.range = None, [], None, None

    def wait(self, timeout=NO_TIMEOUT):
        if not self.done:
            self.complete(timeout.total_seconds() if timeout > NO_TIMEOUT else None)
        if self.range is not None:
            self.range.end()
        if self.error is not None:
            raise self.error
        return True

    synchronize = wait

    def block_current_stream(self):
        self.wait()

    def is_completed(self):
        if not self.done and self.turn.acquire(blocking=False):  # else somebody waits, so it is under way
            try:
                self.look()
            finally:
                self.turn.release()
            self.settle()
        return self.done

    def is_success(self):
        return self.done and self.error is None

    def exception(self):
        return self.error if self.done else None

    def result(self):
        return self.results

    def source_rank(self):
        """The rank that a receive from any source got its message from."""
        return -1 if self.source is None else self.source.value

    _source_rank = source_rank

    def get_future(self):
        if self.future is None:
            base = torch.futures.Future()
            self.future = base.then(self.outcome)  # only a callback's exception is an error for C++, too
            self.unset.append(base)
            if self.done or self.waiter is None:
                self.settle()
            elif self.waiter.is_current():  # a callback of another future, which may wait for this one
                self.complete()
            else:
                self.waiter.watch(self)
        return self.future

    def outcome(self, _):
        if self.error is not None:
            raise self.error
        return self.results

    def complete(self, seconds=None):
        """Waits for the requests; the error, if there is one, is kept."""
        until = None if seconds is None else time.monotonic() + seconds
        if not self.turn.acquire(timeout=-1 if seconds is None else seconds):
            raise self.late(seconds)
        try:
            if until is None:
                while self.requests:
                    self.completed(lib.gw_wait(self.requests.pop(0)))
                self.finish()
            else:
                self.poll(until, seconds)
        finally:
            self.turn.release()
        self.settle()

    def poll(self, until, seconds):
        pause = FIRST_SLEEP
        while not self.look():
            if time.monotonic() > until:
                raise self.late(seconds)
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_SLEEP)

    def late(self, seconds):
        return GradwireError(f"gradwire: {self.doing}: Timed out waiting: Work.wait() gave up after {seconds} s; the "
                             "call itself goes on", "TIMEOUT")

    def look(self):
        """Whether all requests are complete. The turn is held."""
        while self.requests:
            complete, status = test(self.requests[0])
            if not complete:
                return False
            self.requests.pop(0)
            self.completed(status)
        self.finish()
        return True

    def completed(self, status):
        if status and self.error is None:
            self.error = self.communicator.error(status, self.doing)

    def finish(self):
        """The turn is held, and no request uses any memory. Runs once."""
        if self.done:
            return
        if self.error is None and self.then is not None:
            try:
                self.then()
            except Exception as error:
                self.error = error
        self.communicator.pending.discard(self)
        self.keep = self.then = None
        if self.ended is not None:
            self.ended(self.error)
        self.done = True

    def settle(self):
        """Completes the future. The turn is not held: callbacks of the future may use the work."""
        while self.done and self.unset:
            try:
                base = self.unset.pop()
            except IndexError:  # another thread has taken it
                return
            base.set_result(None)


@untraced
class Together(Work):
    """Several works as one."""

    def __init__(self, communicator, doing, works, waiter):
        super().__init__(communicator, doing, [t for work in works for t in work.results], works, None, waiter)
        self.works = works

    def look(self):
        return all([work.is_completed() for work in self.works]) and super().look()

    def complete(self, seconds=None):
        if seconds is None:
            for work in self.works:
                work.complete()
        super().complete(seconds)

    def finish(self):
        if not self.done:
            self.error = next((work.error for work in self.works if work.error is not None), None)
        super().finish()


class Waiter:
    """The thread that completes works whose futures were asked for, in the order in which they were. It begins with the
    first of these."""

    def __init__(self, name):
        self.name, self.queue, self.thread, self.starting = name, queue.SimpleQueue(), None, threading.Lock()

    def watch(self, work):
        with self.starting:
            if self.thread is None:
                self.thread = threading.Thread(target=self.run, name=self.name, daemon=True)
                self.thread.start()
        self.queue.put(work)

    def is_current(self):
        return threading.current_thread() is self.thread

    def run(self):
        for work in iter(self.queue.get, None):
            work.complete()
            del work  # the next one may be long in coming

    def close(self):
        """Ends the thread when it has completed everything."""
        if self.thread is not None and not self.is_current():
            self.queue.put(None)
            self.thread.join(LAST_CALLBACK)
            self.thread = None


class Apart:
    """For messages, which complete in any order: a thread for each work whose future was asked for."""

    def watch(self, work):
        threading.Thread(target=work.complete, daemon=True).start()

    def is_current(self):
        return False

    def close(self):
        pass
