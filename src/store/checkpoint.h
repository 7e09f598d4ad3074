/* checkpoint.h - durable state: one file of named sections, replaced atomically.
 *
 * A new file is written as NAME.writing, synced to disk and renamed; the old one is kept as NAME.previous. Reading
 * verifies every byte. If NAME is torn, truncated or altered, NAME.previous is used instead, with a log line.
 *
 * The format, version 1. All numbers are little-endian, digests are SHA-256:
 *
 *     0    8  "GWCHKPT1"
 *     8    4  number n of sections
 *    12    4  0
 *    16    8  t: where the table begins
 *    24    8  bytes of the file, t + 104 n
 *    32   32  digest of bytes 0 to 31 and the table; the table has the digests of the sections
 *    64       the sections in their order, each followed by zeros to a multiple of 64
 *     t       the table, n times: name (64 bytes, padded with at least one zero), bytes (8), digest (32)
 *
 * The header is written last: an unfinished file begins with zeros. */
#ifndef GW_STORE_CHECKPOINT_H
#define GW_STORE_CHECKPOINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#define GW_SECTION_NAME_BYTES 64 /* with the terminating zero */
#define GW_SECTIONS_MAX 65536

typedef struct gw_checkpoint_writer gw_checkpoint_writer;
typedef struct gw_checkpoint gw_checkpoint;

/* ---- writing: begin, add sections, commit. One writer for a name at a time. ---- */

gw_status gw_checkpoint_begin(const char *path, gw_checkpoint_writer **writer, gw_error *error);
/* Writes at once: data may change afterwards. Names are 1 to 63 bytes and unique. After an error only abandon is
 * allowed. */
gw_status gw_checkpoint_add(gw_checkpoint_writer *writer, const char *name, const void *data, size_t bytes,
                            gw_error *error);
/* On GW_OK the file exists and survives a loss of power. On failure the old checkpoint is still NAME or NAME.previous.
 * Frees the writer either way. Reads and verifies the old NAME: a damaged one does not become NAME.previous. */
gw_status gw_checkpoint_commit(gw_checkpoint_writer *writer, gw_error *error);
/* Discards the new file and keeps the old one. NULL is fine. */
void gw_checkpoint_abandon(gw_checkpoint_writer *writer);

/* ---- reading ---- */

/* Opens NAME, or NAME.previous if NAME is missing or damaged. */
gw_status gw_checkpoint_open(const char *path, gw_checkpoint **checkpoint, gw_error *error);
/* Opens only NAME. */
gw_status gw_checkpoint_open_only(const char *path, gw_checkpoint **checkpoint, gw_error *error);
/* The same from memory, which is copied; name is for error messages. */
gw_status gw_checkpoint_parse(const void *bytes, size_t size, const char *name, gw_checkpoint **checkpoint,
                              gw_error *error);
/* The file it was read from: NAME or NAME.previous. */
const char *gw_checkpoint_path(const gw_checkpoint *checkpoint);
/* NULL: no section of that name. Aligned to 64 bytes; valid until close. */
const void *gw_checkpoint_find(const gw_checkpoint *checkpoint, const char *name, size_t *bytes);
uint32_t gw_checkpoint_sections(const gw_checkpoint *checkpoint);
const char *gw_checkpoint_section_name(const gw_checkpoint *checkpoint, uint32_t i);
/* NULL is fine. */
void gw_checkpoint_close(gw_checkpoint *checkpoint);

#endif
