/* blob.h - the bytes of a file: mapped where the file is plain, so that the ranks of a host share them and each touches
 * only the pages of its own examples; unpacked into memory where it is compressed with gzip. */
#ifndef GW_DATA_BLOB_H
#define GW_DATA_BLOB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#define GW_BLOB_BYTES_MAX ((size_t)8 << 30) /* of one unpacked file */

typedef struct gw_blob {
    uint8_t *data; /* read only where mapped */
    size_t size;
    bool mapped; /* else malloced */
} gw_blob;

/* The file as it is. Refused with a sentence: a missing one, one that is not a plain file, an empty one. */
gw_status gw_blob_map(const char *path, gw_blob *blob, gw_error *error);
/* The file, unpacked if it begins as a gzip file does. */
gw_status gw_blob_open(const char *path, gw_blob *blob, gw_error *error);
/* Unpacks gzip members one after the other; name is the file's, for the sentence. blob is a new one. */
gw_status gw_gunzip(const uint8_t *packed, size_t size, const char *name, gw_blob *blob, gw_error *error);
/* Memory of its own. */
gw_status gw_blob_allocate(size_t size, gw_blob *blob, gw_error *error);
/* Fine for one that is all zero. */
void gw_blob_free(gw_blob *blob);

#endif
