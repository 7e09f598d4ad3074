/* snapshot_writer.h - a server's state on disk: one file (store/checkpoint.h: checksum, fsync, the previous one kept),
 * written by a thread of its own while the server continues. */
#ifndef GW_PS_SNAPSHOT_WRITER_H
#define GW_PS_SNAPSHOT_WRITER_H

#include "base/status.h"

typedef struct gw_snapshot_writer gw_snapshot_writer;

/* path is copied. */
gw_status gw_snapshot_writer_open(gw_snapshot_writer **writer, const char *path, gw_error *error);
/* Waits for what is being written. NULL is fine. */
void gw_snapshot_writer_close(gw_snapshot_writer *writer);

/* Copies the bytes, which the thread then writes. False: the last snapshot is still being written, or out of memory. */
bool gw_snapshot_writer_submit(gw_snapshot_writer *writer, const void *bytes, size_t count);

/* Writes at once, in this thread. */
gw_status gw_snapshot_writer_write(const char *path, const void *bytes, size_t count, gw_error *error);
/* *bytes is the caller's to free. */
gw_status gw_snapshot_writer_read(const char *path, void **bytes, size_t *count, gw_error *error);

#endif
