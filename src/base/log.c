/* log.c - see log.h. */
#include "base/log.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

static void write_line(gw_log_level level, int rank, const char *text) {
    char line[1024];
    int length = rank < 0 ? snprintf(line, sizeof line, "gradwire %s: %s\n", level_names[level], text)
                          : snprintf(line, sizeof line, "gradwire %s: rank %d: %s\n", level_names[level], rank, text);
    ssize_t written = write(STDERR_FILENO, line, (size_t)length);
    (void)written; /* there is nowhere to report an error */
}

void gw_log(gw_log_level level, int rank, const char *format, ...) {
    if (!gw_log_enabled(level)) return;
    char text[985]; /* with what write_line adds it is a line of at most 1,024 bytes */
    va_list args;
    va_start(args, format);
    int length = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (length < 0) return;
    pthread_rwlock_rdlock(&callback_lock);
    if (callback) callback(callback_ctx, level, rank, text);
    else write_line(level, rank, text);
    pthread_rwlock_unlock(&callback_lock);
}
