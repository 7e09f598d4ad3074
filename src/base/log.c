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

static void write_line(const char *label, int rank, const char *text) {
    char line[1024];
    int length = rank < 0 ? snprintf(line, sizeof line, "gradwire%s: %s\n", label, text)
                          : snprintf(line, sizeof line, "gradwire%s: rank %d: %s\n", label, rank, text);
    ssize_t written = write(STDERR_FILENO, line, (size_t)length);
    (void)written; /* there is nowhere to report an error */
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
