"""Ctrl-C in a rank that waits for others.

Python runs the handler of a signal in the main thread, which does not return from a collective that other ranks do not
make. A thread here sees the signal too: if the main thread has not noticed it after PATIENCE seconds, it aborts the job,
so that the call returns and the main thread gets its KeyboardInterrupt."""
import atexit
import os
import signal
import sys
import threading

PATIENCE = 0.2  # seconds

_noticed = threading.Event()  # the main thread has run its handler


def happened():
    """Whether Ctrl-C has been pressed."""
    return _noticed.is_set()


def watch(abort):
    """abort: ends the job. A program that handles SIGINT itself, or has a wake-up descriptor, is left alone."""
    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    if before != -1:
        signal.set_wakeup_fd(before)
        os.close(reader)
        os.close(writer)
        return
    signal.signal(signal.SIGINT, interrupted)
    os.register_at_fork(after_in_child=let_go)
    threading.Thread(target=listen, args=(reader, abort), name="gradwire interrupts", daemon=True).start()


def interrupted(number, frame):
    _noticed.set()
    signal.default_int_handler(number, frame)


def end():
    """Ends the process by SIGINT, as Python does after a KeyboardInterrupt, but without taking the interpreter down: for
    torch alone that takes a second."""
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGINT)


def let_go():
    """A forked child must not write into its parent's pipe."""
    signal.set_wakeup_fd(-1)


def listen(reader, abort):
    while True:
        if signal.SIGINT in os.read(reader, 64) and not _noticed.wait(PATIENCE):
            abort("interrupted by Ctrl-C")
