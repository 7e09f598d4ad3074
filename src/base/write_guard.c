/* write_guard.c - see write_guard.h. */
#include "base/write_guard.h"

#include <errno.h>
#include <time.h>

void gw_write_guard_begin(gw_write_guard *guard) {
    static const int raised[] = {SIGXFSZ, SIGPIPE};
    int code = errno;
    sigset_t blocked, pending;
    sigemptyset(&blocked);
    sigemptyset(&guard->raised);
    sigpending(&pending);
    for (size_t i = 0; i < sizeof raised / sizeof raised[0]; i++) {
        sigaddset(&blocked, raised[i]);
        if (!sigismember(&pending, raised[i])) sigaddset(&guard->raised, raised[i]); /* else it is the program's */
    }
    pthread_sigmask(SIG_BLOCK, &blocked, &guard->before);
    errno = code;
}

void gw_write_guard_end(const gw_write_guard *guard) {
    const struct timespec now = {0};
    int code = errno;
    while (sigtimedwait(&guard->raised, NULL, &now) > 0 || errno == EINTR) {}
    pthread_sigmask(SIG_SETMASK, &guard->before, NULL);
    errno = code;
}
