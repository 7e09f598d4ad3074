/* blob.h - the bytes of a file. A plain file is mapped: the ranks of a host share its pages, and each reads only those
 * of its own examples. A gzip file is decompressed into memory. */
#ifndef GW_DATA_BLOB_H
#define GW_DATA_BLOB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#define GW_BLOB_BYTES_MAX ((size_t)8 << 30) /* of one unpacked file */

typedef struct gw_blob {
    uint8_t *data; /* read-only if mapped */
    size_t size;
    bool mapped; /* else malloced */
} gw_blob;

/* Maps the file. Errors: it is missing, it is not a regular file, it is empty. */
gw_status gw_blob_map(const char *path, gw_blob *blob, gw_error *error);
/* Maps the file, or decompresses it if it has the gzip magic. */
gw_status gw_blob_open(const char *path, gw_blob *blob, gw_error *error);
/* Decompresses all gzip members into a new blob; name: of the file, for errors. */
gw_status gw_gunzip(const uint8_t *packed, size_t size, const char *name, gw_blob *blob, gw_error *error);
/* A new blob in malloced memory. */
gw_status gw_blob_allocate(size_t size, gw_blob *blob, gw_error *error);
/* A zeroed blob is fine. */
void gw_blob_free(gw_blob *blob);

#endif
