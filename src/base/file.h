/* file.h - small files: read whole, and replaced atomically: a reader finds the old file or the new one, never half. */
#ifndef GW_BASE_FILE_H
#define GW_BASE_FILE_H

#include <stdio.h>

#include "base/status.h"

/* Reads the whole file; the caller frees *bytes. GW_INVALID if it has more than `most` bytes. */
gw_status gw_file_read(const char *path, size_t most, char **bytes, size_t *size, gw_error *error);

/* Makes a file and opens it for writing; -1 and errno on failure. What was there is removed, not written to: in a
 * folder that others write to, it may be a link to a file of this user's, or somebody else's own. mode: less the umask.
 */
int gw_file_create(const char *path, unsigned mode);

typedef void gw_file_writer(const void *ctx, FILE *out);

/* Replaces the file with what `write` prints, once all of it is written. Until then, and on failure, the old file
 * stays. Anything but a regular file (a pipe, a terminal) is written to directly. */
gw_status gw_file_replace(const char *path, gw_file_writer *write, const void *ctx, gw_error *error);

#endif
