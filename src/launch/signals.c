/* signals.c - see signals.h. */
#include "launch/signals.h"

#include <stddef.h>
#include <sys/signalfd.h>

static bool is_ignored(int number) {
    struct sigaction action;
    return sigaction(number, NULL, &action) != 0 || action.sa_handler == SIG_IGN;
}

int gw_signals_open(bool keep_ignored, sigset_t *before) {
    static const int ending[] = {SIGINT, SIGTERM, SIGHUP};
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    for (size_t i = 0; i < sizeof ending / sizeof ending[0]; i++)
        if (!keep_ignored || !is_ignored(ending[i])) sigaddset(&set, ending[i]);
    signal(SIGCHLD, SIG_DFL);
    signal(SIGPIPE, SIG_IGN);
    sigprocmask(SIG_BLOCK, &set, before);
    return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}
