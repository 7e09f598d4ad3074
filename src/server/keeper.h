/* keeper.h - what a server knows, on disk: one file (store/checkpoint.h: checksum, fsync, the previous one kept),
 * written by a thread of its own while the server goes on. */
#ifndef GW_SERVER_KEEPER_H
#define GW_SERVER_KEEPER_H

#include "base/status.h"

typedef struct gw_keeper gw_keeper;

/* path is copied. */
gw_status gw_keeper_open(gw_keeper **keeper, const char *path, gw_error *error);
/* Waits for what is being written. NULL is fine. */
void gw_keeper_close(gw_keeper *keeper);

/* Takes a copy to be written, unless the last is still being written: false. */
bool gw_keeper_give(gw_keeper *keeper, const void *bytes, size_t count);

/* At once, in this thread. */
gw_status gw_keeper_write(const char *path, const void *bytes, size_t count, gw_error *error);
/* *bytes is the caller's to free. */
gw_status gw_keeper_read(const char *path, void **bytes, size_t *count, gw_error *error);

#endif
