/* gzip_absent.c - gzip files in a build without zlib: the error says what is missing. */
#include "data/blob.h"

gw_status gw_gunzip(const uint8_t *packed, size_t size, const char *name, gw_blob *blob, gw_error *error) {
    (void)packed, (void)size, (void)blob;
    return gw_fail(
        error, GW_UNSUPPORTED,
        "%s is a gzip file, and this gradwire was built without zlib: install zlib1g-dev and build again, or "
        "unpack the file with gunzip",
        name);
}
