/* copy.h - copying with ordinary vector loads and stores.
 *
 * For more than about 2 KiB memcpy uses `rep movsb` on CPUs that claim to do it fast, and some (Zen 3 and 4) then take
 * up to 19 times as long when the destination lies a few bytes after the source modulo 4096: just as memory of malloc
 * and page-aligned staging areas lie. */
#ifndef GW_TRANSPORT_COPY_H
#define GW_TRANSPORT_COPY_H

#include "base/reduce.h"

#include <string.h>

/* Into several destinations at once; those that are the source itself are fine. */
static inline void gw_copy_push(void *const *dst, int destinations, const void *src, size_t bytes) {
    /* The largest of one number is that number. */
    gw_reduce_push((gw_reduction){GW_U8, GW_MAX, 1}, dst, destinations, &src, 1, bytes);
}

static inline void gw_copy(void *dst, const void *src, size_t bytes) {
    if (bytes <= 2048) memcpy(dst, src, bytes);
    else gw_copy_push(&dst, 1, src, bytes);
}

#endif
