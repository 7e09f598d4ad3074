/* text.h - the bytes of a text: a file (plain or gzip), a directory of .txt files joined in the order of their names,
 * or an archive of the Debian bible packages. */
#ifndef GW_DATA_TEXT_H
#define GW_DATA_TEXT_H

#include "base/status.h"
#include "data/blob.h"

gw_status gw_text_load(const char *path, gw_blob *text, gw_error *error);

/* An archive of compressed windows; name: of the file, for errors. */
bool gw_archive_is(const uint8_t *bytes, size_t size);
gw_status gw_archive_decode(const uint8_t *bytes, size_t size, const char *name, gw_blob *text, gw_error *error);

#endif
