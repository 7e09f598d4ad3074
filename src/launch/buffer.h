/* buffer.h - a queue of bytes that grows: added at the back, taken from the front. */
#ifndef GW_LAUNCH_BUFFER_H
#define GW_LAUNCH_BUFFER_H

#include <stdbool.h>
#include <stddef.h>

typedef struct gw_buffer {
    char *data;      /* owned; NULL while nothing was added */
    size_t start;    /* the first byte that was not taken */
    size_t end;      /* behind the last byte */
    size_t capacity; /* bytes of data */
    bool failed;     /* memory ran out and bytes were lost; stays set */
} gw_buffer;

static inline const char *gw_buffer_head(const gw_buffer *b) { return b->data + b->start; }
static inline size_t gw_buffer_size(const gw_buffer *b) { return b->end - b->start; }

void gw_buffer_add(gw_buffer *b, const void *data, size_t bytes);
void gw_buffer_take(gw_buffer *b, size_t bytes);
void gw_buffer_free(gw_buffer *b);

/* One read from fd to the back, up to 64 KiB. Returns the bytes read, 0 at the end of the stream or where it is broken,
 * -1 if there is nothing now. */
long gw_buffer_read(gw_buffer *b, int fd);

/* One write of the front to fd, small enough that a descriptor which poll calls writable does not block. False: the
 * reader is gone. */
bool gw_buffer_write(gw_buffer *b, int fd);

#endif
