/* checkpoint.h - durable state: one file of named sections that is there whole or not at all.
 *
 * A new file is written beside (NAME.writing), brought to the disk, and renamed; the one before it is kept as
 * NAME.previous. Reading verifies every byte. A torn, truncated or altered NAME is refused with a sentence, and
 * NAME.previous is used instead, which a log line tells.
 *
 * The format, version 1. All numbers are little-endian, digests are SHA-256:
 *
 *     0    8  "GWCHKPT1"
 *     8    4  number n of sections
 *    12    4  0
 *    16    8  t: where the table begins
 *    24    8  bytes of the file, t + 104 n
 *    32   32  digest of bytes 0 to 31 and the table; through the table it covers everything
 *    64       the sections in their order, each followed by zeros to a multiple of 64
 *     t       the table, n times: name (64 bytes, ended and filled up with zeros), bytes (8), digest (32)
 *
 * The header is written last: a file whose writer stopped begins with zeros. */
#ifndef GW_STORE_CHECKPOINT_H
#define GW_STORE_CHECKPOINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#define GW_SECTION_NAME_BYTES 64 /* with the zero at its end */
#define GW_SECTIONS_MAX 65536

typedef struct gw_checkpoint_writer gw_checkpoint_writer;
typedef struct gw_checkpoint gw_checkpoint;

/* ---- writing: begin, add sections, commit. One writer for a name at a time. ---- */

gw_status gw_checkpoint_begin(const char *path, gw_checkpoint_writer **writer, gw_error *error);
/* Written at once: data may change afterwards. Names are 1 to 63 bytes and differ. After an error only abandon is left.
 */
gw_status gw_checkpoint_add(gw_checkpoint_writer *writer, const char *name, const void *data, size_t bytes,
                            gw_error *error);
/* When this returns GW_OK the file is there and survives a loss of power. Otherwise NAME, or NAME.previous, is what
 * NAME was. Frees the writer either way. A damaged NAME does not become NAME.previous: for that it is read and
 * verified. */
gw_status gw_checkpoint_commit(gw_checkpoint_writer *writer, gw_error *error);
/* Leaves what was there. NULL is fine. */
void gw_checkpoint_abandon(gw_checkpoint_writer *writer);

/* ---- reading ---- */

/* NAME, or NAME.previous where NAME is missing or damaged. */
gw_status gw_checkpoint_open(const char *path, gw_checkpoint **checkpoint, gw_error *error);
/* NAME and no other. */
gw_status gw_checkpoint_open_only(const char *path, gw_checkpoint **checkpoint, gw_error *error);
/* The same from memory, which is copied; name is for sentences. */
gw_status gw_checkpoint_parse(const void *bytes, size_t size, const char *name, gw_checkpoint **checkpoint,
                              gw_error *error);
/* Which file it was read from: NAME or NAME.previous. */
const char *gw_checkpoint_path(const gw_checkpoint *checkpoint);
/* NULL: no section of that name. Aligned to 64 bytes; valid until close. */
const void *gw_checkpoint_find(const gw_checkpoint *checkpoint, const char *name, size_t *bytes);
uint32_t gw_checkpoint_sections(const gw_checkpoint *checkpoint);
const char *gw_checkpoint_section_name(const gw_checkpoint *checkpoint, uint32_t i);
/* NULL is fine. */
void gw_checkpoint_close(gw_checkpoint *checkpoint);

#endif
