/* signals.c - see signals.h. */
#include "launch/signals.h"

#include <stddef.h>
#include <sys/signalfd.h>

static bool is_ignored(int number) {
    struct sigaction action;
    return sigaction(number, NULL, &action) != 0 || action.sa_handler == SIG_IGN;
}

int gw_signals_open(bool launcher, sigset_t *before) {
    static const int ending[] = {SIGINT, SIGTERM, SIGHUP};
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    for (size_t i = 0; i < sizeof ending / sizeof ending[0]; i++)
        if (!launcher || !is_ignored(ending[i])) sigaddset(&set, ending[i]);
    if (launcher && !is_ignored(SIGTSTP)) sigaddset(&set, SIGTSTP);
    signal(SIGCHLD, SIG_DFL);
    signal(SIGPIPE, SIG_IGN);
    sigprocmask(SIG_BLOCK, &set, before);
    return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}
