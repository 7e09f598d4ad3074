/* bench_lines.c - a stream of lines; see side_channel.h. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/side_channel.h"

#define READ_BYTES 16384

bool gw_lines_read(gw_lines *lines) {
    if (lines->taken) {
        memmove(lines->data, lines->data + lines->taken, lines->used - lines->taken);
        lines->used -= lines->taken;
        lines->taken = 0;
    }
    if (lines->capacity - lines->used < READ_BYTES) {
        char *data = realloc(lines->data, lines->capacity + 2 * READ_BYTES);
        if (!data) return false;
        lines->data = data;
        lines->capacity += 2 * READ_BYTES;
    }
    ssize_t got;
    do got = read(lines->fd, lines->data + lines->used, READ_BYTES);
    while (got < 0 && errno == EINTR);
    if (got > 0) lines->used += (size_t)got;
    return got > 0;
}

char *gw_lines_next(gw_lines *lines) {
    char *start = lines->data + lines->taken;
    char *end = lines->used > lines->taken ? memchr(start, '\n', lines->used - lines->taken) : NULL;
    if (!end) return NULL;
    *end = 0;
    lines->taken = (size_t)(end + 1 - lines->data);
    return start;
}

void gw_lines_free(gw_lines *lines) {
    if (lines->fd >= 0) close(lines->fd);
    free(lines->data);
    *lines = (gw_lines){.fd = -1};
}
