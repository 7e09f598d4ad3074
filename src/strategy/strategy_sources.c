/* strategy_sources.c - where a strategy comes from: a file, the environment, a given line. Each overrides the ones
 * before, axis by axis. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/suggest.h"
#include "strategy/strategy.h"

/* Reads at most size bytes; -1 and errno on failure. Non-blocking, so that a pipe without a writer does not block. */
static ssize_t file_read(const char *path, char *text, size_t size) {
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return -1;
    size_t used = 0;
    ssize_t got = 1;
    while (used < size && got > 0) {
        got = read(fd, text + used, size - used);
        if (got > 0) used += (size_t)got;
    }
    int cause = errno;
    close(fd);
    errno = cause;
    return got < 0 ? -1 : (ssize_t)used;
}

static gw_status file_overlay(gw_strategy *strategy, const char *path, gw_error *error) {
    char text[GW_STRATEGY_INPUT_MAX + 2], quoted[GW_QUOTE_BYTES], source[GW_QUOTE_BYTES + 32];
    snprintf(source, sizeof source, "GRADWIRE_STRATEGY_FILE %s", gw_suggest_quote(path, quoted));
    ssize_t length = file_read(path, text, sizeof text - 1);
    if (length < 0) return gw_fail(error, GW_SYSTEM, "%s cannot be read: %s", source, strerror(errno));
    text[length] = '\0';
    if (strlen(text) != (size_t)length)
        return gw_fail(error, GW_INVALID, "%s is not a text file: byte %zu is zero", source, strlen(text) + 1);
    return gw_strategy_overlay(strategy, text, source, error);
}

gw_status gw_strategy_resolve(const char *line, gw_strategy *strategy, gw_error *error) {
    gw_strategy resolved;
    gw_status status = GW_OK;
    const char *path = getenv("GRADWIRE_STRATEGY_FILE"), *variable = getenv("GRADWIRE_STRATEGY");
    gw_strategy_default(&resolved);
    if (path && *path) status = file_overlay(&resolved, path, error);
    if (status == GW_OK && variable) status = gw_strategy_overlay(&resolved, variable, "GRADWIRE_STRATEGY", error);
    if (status == GW_OK && line) status = gw_strategy_overlay(&resolved, line, NULL, error);
    if (status == GW_OK) *strategy = resolved;
    return status;
}
