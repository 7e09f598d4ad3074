/* sized.h - public structs that can grow: a caller that was compiled against an older header passes a shorter struct, a
 * caller of a newer one a longer struct. */
#ifndef GW_BASE_SIZED_H
#define GW_BASE_SIZED_H

#include "base/status.h"

/* Reads a struct of `size` bytes as the caller knows it. *into holds the defaults and has `known` bytes, as this
 * library knows it; the fields that the caller knows are copied over them. least: bytes of the first version of the
 * struct. A caller's struct that is longer than `known` is read if the rest of it is 0, the default of fields that were
 * added later. what: for the sentence, "gw_init: gw_options". */
gw_status gw_sized_read(void *into, size_t known, const void *from, size_t size, size_t least, const char *what,
                        gw_error *error);
/* Writes a struct of `known` bytes into the caller's, which has `size`: what the caller does not know is left out, and
 * what this library does not know is 0. */
void gw_sized_write(void *into, size_t size, const void *from, size_t known);

#endif
