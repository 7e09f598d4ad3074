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
enum { ALIVE = 3, DONE, KEPT }; /* the descriptors of a watchdog */

static void wait_for_end(int alive) {
    char byte;
    while (read(alive, &byte, 1) < 0 && errno == EINTR) continue;
}

/* Closes the parent's descriptors: otherwise the reader of a pipe of the parent would wait for the watchdog too. Those
 * that stay first move out of the way, because they may have each other's new numbers. */
static void keep_descriptors(const int *from, int count) {
    int far[KEPT + GW_WATCHDOG_KEEP_MAX];
    for (int i = 0; i < count; i++) far[i] = fcntl(from[i], F_DUPFD, KEPT + GW_WATCHDOG_KEEP_MAX);
    for (int i = 0; i < count; i++) dup2(far[i], ALIVE + i);
    close_range((unsigned)(ALIVE + count), ~0u, 0);
}

static void become_watchdog(int alive, int done, const gw_watchdog_duty *duty) {
    const int ignored[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE};
    int from[KEPT + GW_WATCHDOG_KEEP_MAX] = {alive, done}, kept[GW_WATCHDOG_KEEP_MAX];
    setsid();
    for (size_t i = 0; i < sizeof ignored / sizeof ignored[0]; i++) signal(ignored[i], SIG_IGN);
    for (int i = 0; i < duty->keep_count; i++) {
        from[2 + i] = duty->keep[i];
        kept[i] = KEPT + i;
    }
    keep_descriptors(from, 2 + duty->keep_count);
    if (duty->work) duty->work(duty->ctx, ALIVE, kept);
    else wait_for_end(ALIVE);
    if (duty->last) duty->last(duty->ctx);
    _exit(0);
}

/* Forks twice; the process in between exits at once, so the watchdog is not our child. */
static bool start(const int alive[2], const int done[2], const gw_watchdog_duty *duty) {
    int status = 0;
    pid_t between = fork();
    if (between == 0) {
        close(alive[1]);
        close(done[0]);
        pid_t watchdog = fork();
        if (watchdog == 0) become_watchdog(alive[0], done[1], duty);
        _exit(watchdog < 0);
    }
    if (between < 0) return false;
    while (waitpid(between, &status, 0) < 0 && errno == EINTR) continue;
    return status == 0;
}

gw_status gw_watchdog_open(gw_watchdog *watchdog, const gw_watchdog_duty *duty, gw_error *error) {
    int alive[2], done[2];
    if (pipe2(alive, O_CLOEXEC) != 0) return gw_fail(error, GW_SYSTEM, "no pipe for a watchdog: %s", strerror(errno));
    if (pipe2(done, O_CLOEXEC) != 0) {
        gw_fail(error, GW_SYSTEM, "no pipe for a watchdog: %s", strerror(errno));
        close(alive[0]);
        close(alive[1]);
        return GW_SYSTEM;
    }
    bool started = start(alive, done, duty);
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
