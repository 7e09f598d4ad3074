/* byte_queue.h - a growing queue of bytes: added at the back, taken from the front. */
#ifndef GW_LAUNCH_BYTE_QUEUE_H
#define GW_LAUNCH_BYTE_QUEUE_H

#include <stdbool.h>
#include <stddef.h>

typedef struct gw_buffer {
    char *data;      /* owned; NULL until the first add */
    size_t start;    /* offset of the first byte */
    size_t end;      /* offset after the last byte */
    size_t capacity; /* bytes of data */
    bool failed;     /* memory ran out and bytes were lost; stays set */
} gw_buffer;

static inline const char *gw_buffer_head(const gw_buffer *b) { return b->data + b->start; }
static inline size_t gw_buffer_size(const gw_buffer *b) { return b->end - b->start; }

void gw_buffer_add(gw_buffer *b, const void *data, size_t bytes);
void gw_buffer_take(gw_buffer *b, size_t bytes);
void gw_buffer_free(gw_buffer *b);

/* One read of up to 64 KiB from fd to the back. Returns the bytes read; 0 at the end of the stream or after an error;
 * -1 if nothing is available now. */
long gw_buffer_read(gw_buffer *b, int fd);

/* One write from the front to fd, at most PIPE_BUF bytes, so it does not block after poll reported POLLOUT. False: the
 * reader is gone. */
bool gw_buffer_write(gw_buffer *b, int fd);

#endif
