/* log.c - see log.h. */
#include "base/log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const level_names[] = {"error", "warn", "info", "debug", "trace"};

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

void gw_log(gw_log_level level, int rank, const char *format, ...) {
    if (!gw_log_enabled(level)) return;
    char line[1024];
    int used = rank < 0 ? snprintf(line, sizeof line, "gradwire %s: ", level_names[level])
                        : snprintf(line, sizeof line, "gradwire %s: rank %d: ", level_names[level], rank);
    va_list args;
    va_start(args, format);
    int body = vsnprintf(line + used, sizeof line - (size_t)used - 1, format, args);
    va_end(args);
    if (body < 0) return;
    size_t length = strlen(line);
    line[length++] = '\n';
    ssize_t written = write(STDERR_FILENO, line, length);
    (void)written; /* there is nowhere to report an error */
}
