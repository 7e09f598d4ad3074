/* watchdog.c - see watchdog.h. */
#include "lab/watchdog.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Descriptors of the parent are let go: whoever waits for their end must not wait for the watchdog. */
static void become_watchdog(int pipe_end, void (*last)(void *ctx), void *ctx) {
    const int ignored[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE};
    char byte;
    setsid();
    for (size_t i = 0; i < sizeof ignored / sizeof ignored[0]; i++) signal(ignored[i], SIG_IGN);
    int fd = dup2(pipe_end, 3);
    close_range(4, ~0u, 0);
    while (read(fd, &byte, 1) < 0 && errno == EINTR) continue;
    last(ctx);
    _exit(0);
}

gw_status gw_watchdog_open(gw_watchdog *watchdog, void (*last)(void *ctx), void *ctx, gw_error *error) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return gw_fail(error, GW_SYSTEM, "no pipe for a watchdog: %s", strerror(errno));
    watchdog->pid = fork();
    if (watchdog->pid == 0) {
        close(ends[1]);
        become_watchdog(ends[0], last, ctx);
    }
    close(ends[0]);
    if (watchdog->pid < 0) {
        close(ends[1]);
        return gw_fail(error, GW_SYSTEM, "no process for a watchdog: %s", strerror(errno));
    }
    watchdog->pipe = ends[1];
    return GW_OK;
}

void gw_watchdog_close(gw_watchdog *watchdog) {
    close(watchdog->pipe);
    while (waitpid(watchdog->pid, NULL, 0) < 0 && errno == EINTR) continue;
}
