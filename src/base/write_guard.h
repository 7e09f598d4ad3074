/* write_guard.h - writing to files in threads of the program that uses the library.
 *
 * A write beyond `ulimit -f` raises SIGXFSZ, and one to a pipe without a reader raises SIGPIPE; both end the process. A
 * library must not change how its process handles signals. Between these two calls the signals are blocked for the
 * calling thread, so that the write returns EFBIG or EPIPE; a signal that it has raised is taken back. Both keep errno.
 * Threads of the library block all signals (base/thread.h) and need no guard. */
#ifndef GW_BASE_WRITE_GUARD_H
#define GW_BASE_WRITE_GUARD_H

#include <signal.h>

typedef struct gw_write_guard {
    sigset_t before; /* the thread's mask */
    sigset_t raised; /* signals that a guarded write may raise: to be taken back */
} gw_write_guard;

void gw_write_guard_begin(gw_write_guard *guard);
void gw_write_guard_end(const gw_write_guard *guard);

#endif
