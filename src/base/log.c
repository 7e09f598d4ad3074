/* log.c - see log.h. */
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/write_guard.h"

#define PATIENCE_MS 10

static const char *const level_names[] = {"error", "warn", "info", "debug", "trace"};

/* Process-wide, as standard error is. A reader holds the lock while the callback runs. */
static pthread_rwlock_t callback_lock = PTHREAD_RWLOCK_INITIALIZER;
static gw_log_fn *callback;
static void *callback_ctx;

void gw_set_log(gw_log_fn *log, void *ctx) {
    pthread_rwlock_wrlock(&callback_lock);
    callback = log;
    callback_ctx = ctx;
    pthread_rwlock_unlock(&callback_lock);
}

bool gw_log_level_parse(const char *name, gw_log_level *level) {
    for (int i = 0; i <= GW_LOG_TRACE; i++) {
        if (strcmp(name, level_names[i]) == 0) {
            *level = (gw_log_level)i;
            return true;
        }
    }
    return false;
}

/* The environment is read once; an unknown name counts as the default (gw_init rejects it with an error). */
static gw_log_level threshold(void) {
    static _Atomic int cached = -1;
    int level = atomic_load_explicit(&cached, memory_order_relaxed);
    if (level < 0) {
        gw_log_level parsed = GW_LOG_WARN;
        const char *name = getenv("GRADWIRE_LOG");
        if (name) gw_log_level_parse(name, &parsed);
        level = (int)parsed;
        atomic_store_explicit(&cached, level, memory_order_relaxed);
    }
    return (gw_log_level)level;
}

bool gw_log_enabled(gw_log_level level) { return level <= threshold(); }

/* Lines that could not be written since the last one that was. */
static _Atomic unsigned dropped;

/* Standard error is shared with other processes, so its flags stay as they are: O_NONBLOCK would hold for all of them.
 * A pipe or terminal is opened once more, for this line. -1: not possible. */
static int open_again(void) {
    struct stat about;
    if (fstat(STDERR_FILENO, &about) != 0) return -1;
    if (!S_ISFIFO(about.st_mode) && !isatty(STDERR_FILENO)) return -1;
    return open("/proc/self/fd/2", O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
}

/* False: there is no room now. A line that fails otherwise counts as written: there is nowhere to report it. */
static bool try_write(int again, const char *line, size_t length) {
    struct pollfd room = {.fd = STDERR_FILENO, .events = POLLOUT};
    ssize_t written = send(STDERR_FILENO, line, length, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (written < 0 && errno == ENOTSOCK) {
        if (again < 0 && poll(&room, 1, 0) == 0) return false;
        written = write(again < 0 ? STDERR_FILENO : again, line, length);
    }
    return written >= 0 || (errno != EAGAIN && errno != EWOULDBLOCK);
}

/* Never waits longer than PATIENCE_MS, and that only for the first line that finds no room: a reader may be slow for a
 * moment, but one that has stopped must not stop the ranks. */
static void write_or_drop(const char *line, size_t length) {
    struct pollfd room = {.fd = STDERR_FILENO, .events = POLLOUT};
    char missing[96];
    unsigned lost = atomic_exchange(&dropped, 0);
    size_t bytes = lost ? (size_t)snprintf(missing, sizeof missing,
                                           "gradwire warn: %u line%s missing here: standard error was full\n", lost,
                                           lost == 1 ? " is" : "s are")
                        : 0;
    gw_write_guard guard;
    gw_write_guard_begin(&guard);
    int again = open_again();
    bool told = !lost || try_write(again, missing, bytes), written = told && try_write(again, line, length);
    if (!written && !lost) {
        poll(&room, 1, PATIENCE_MS);
        written = try_write(again, line, length);
    }
    if (!written) atomic_fetch_add(&dropped, told ? 1 : lost + 1);
    if (again >= 0) close(again);
    gw_write_guard_end(&guard);
}

static void write_line(const char *label, int rank, const char *text) {
    char line[1024];
    int length = rank < 0 ? snprintf(line, sizeof line, "gradwire%s: %s\n", label, text)
                          : snprintf(line, sizeof line, "gradwire%s: rank %d: %s\n", label, rank, text);
    write_or_drop(line, (size_t)length);
}

static void tell(gw_log_level level, const char *label, int rank, const char *format, va_list args) {
    char text[985]; /* with what write_line adds it is a line of at most 1,024 bytes */
    if (vsnprintf(text, sizeof text, format, args) < 0) return;
    pthread_rwlock_rdlock(&callback_lock);
    if (callback) callback(callback_ctx, level, rank, text);
    else write_line(label, rank, text);
    pthread_rwlock_unlock(&callback_lock);
}

void gw_log(gw_log_level level, int rank, const char *format, ...) {
    static const char *const labels[] = {" error", " warn", " info", " debug", " trace"};
    va_list args;
    if (!gw_log_enabled(level)) return;
    va_start(args, format);
    tell(level, labels[level], rank, format, args);
    va_end(args);
}

void gw_log_notice(int rank, const char *format, ...) {
    va_list args;
    if (getenv("GRADWIRE_LOG") && !gw_log_enabled(GW_LOG_INFO)) return;
    va_start(args, format);
    tell(GW_LOG_INFO, "", rank, format, args);
    va_end(args);
}
