/* byte_queue.c - see byte_queue.h. */
#include "launch/byte_queue.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { READ_BYTES = 64 << 10 };

static bool make_room(gw_buffer *b, size_t bytes) {
    if (b->failed) return false;
    if (b->capacity - b->end >= bytes) return true;
    size_t size = gw_buffer_size(b);
    if (b->start) {
        memmove(b->data, b->data + b->start, size);
        b->start = 0;
        b->end = size;
    }
    if (b->capacity - size >= bytes) return true;
    size_t capacity = b->capacity ? b->capacity : 256;
    while (capacity - size < bytes) capacity *= 2;
    char *data = realloc(b->data, capacity);
    if (!data) {
        b->failed = true;
        return false;
    }
    b->data = data;
    b->capacity = capacity;
    return true;
}

void gw_buffer_add(gw_buffer *b, const void *data, size_t bytes) {
    if (bytes == 0 || !make_room(b, bytes)) return;
    memcpy(b->data + b->end, data, bytes);
    b->end += bytes;
}

void gw_buffer_take(gw_buffer *b, size_t bytes) {
    b->start += bytes;
    if (b->start == b->end) b->start = b->end = 0;
}

void gw_buffer_free(gw_buffer *b) {
    free(b->data);
    *b = (gw_buffer){0};
}

long gw_buffer_read(gw_buffer *b, int fd) {
    if (!make_room(b, READ_BYTES)) return 0;
    ssize_t bytes = read(fd, b->data + b->end, READ_BYTES);
    if (bytes < 0) return errno == EINTR || errno == EAGAIN ? -1 : 0;
    b->end += (size_t)bytes;
    return bytes;
}

bool gw_buffer_write(gw_buffer *b, int fd) {
    size_t size = gw_buffer_size(b);
    if (size == 0) return true;
    ssize_t bytes = write(fd, gw_buffer_head(b), size < PIPE_BUF ? size : PIPE_BUF);
    if (bytes < 0) return errno == EINTR || errno == EAGAIN;
    gw_buffer_take(b, (size_t)bytes);
    return true;
}
