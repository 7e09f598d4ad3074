/* file.h - small files: read whole, and replaced so that a reader finds the old one or the new one, never half. */
#ifndef GW_BASE_FILE_H
#define GW_BASE_FILE_H

#include <stdio.h>

#include "base/status.h"

/* The whole file, the caller's to free. GW_INVALID where it has more than `most` bytes. */
gw_status gw_file_read(const char *path, size_t most, char **bytes, size_t *size, gw_error *error);

typedef void gw_file_writer(const void *ctx, FILE *out);

/* What `write` prints takes the file's place when all of it is written; until then, and where that fails, what was
 * there stays. What is not an ordinary file (a pipe, a terminal) is written to as it is. */
gw_status gw_file_replace(const char *path, gw_file_writer *write, const void *ctx, gw_error *error);

#endif
