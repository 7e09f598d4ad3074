/* watchdog.c - see watchdog.h. */
#include "lab/watchdog.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CLOSE_MS = 30000 };

/* Closes the parent's descriptors: otherwise the reader of a pipe of the parent would wait for the watchdog too. Keeps
 * `alive` as 3 and `done` as 4; `done` moves to 10 or above first, because it may be 3 itself. */
static void become_watchdog(int alive, int done, void (*last)(void *ctx), void *ctx) {
    const int ignored[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE};
    char byte;
    setsid();
    for (size_t i = 0; i < sizeof ignored / sizeof ignored[0]; i++) signal(ignored[i], SIG_IGN);
    int far = fcntl(done, F_DUPFD, 10);
    dup2(alive, 3);
    dup2(far, 4);
    close_range(5, ~0u, 0);
    while (read(3, &byte, 1) < 0 && errno == EINTR) continue;
    last(ctx);
    _exit(0);
}

/* Forks twice; the process in between exits at once, so the watchdog is not our child. */
static bool start(const int alive[2], const int done[2], void (*last)(void *ctx), void *ctx) {
    int status = 0;
    pid_t between = fork();
    if (between == 0) {
        close(alive[1]);
        close(done[0]);
        pid_t watchdog = fork();
        if (watchdog == 0) become_watchdog(alive[0], done[1], last, ctx);
        _exit(watchdog < 0);
    }
    if (between < 0) return false;
    while (waitpid(between, &status, 0) < 0 && errno == EINTR) continue;
    return status == 0;
}

gw_status gw_watchdog_open(gw_watchdog *watchdog, void (*last)(void *ctx), void *ctx, gw_error *error) {
    int alive[2], done[2];
    if (pipe2(alive, O_CLOEXEC) != 0) return gw_fail(error, GW_SYSTEM, "no pipe for a watchdog: %s", strerror(errno));
    if (pipe2(done, O_CLOEXEC) != 0) {
        gw_fail(error, GW_SYSTEM, "no pipe for a watchdog: %s", strerror(errno));
        close(alive[0]);
        close(alive[1]);
        return GW_SYSTEM;
    }
    bool started = start(alive, done, last, ctx);
    close(alive[0]);
    close(done[1]);
    *watchdog = (gw_watchdog){.alive = alive[1], .done = done[0]};
    if (started) return GW_OK;
    close(alive[1]);
    close(done[0]);
    return gw_fail(error, GW_SYSTEM, "no process for a watchdog: see ulimit -u");
}

void gw_watchdog_close(gw_watchdog *watchdog) {
    struct pollfd done = {.fd = watchdog->done, .events = POLLIN};
    close(watchdog->alive);
    while (poll(&done, 1, CLOSE_MS) < 0 && errno == EINTR) continue;
    close(watchdog->done);
}
