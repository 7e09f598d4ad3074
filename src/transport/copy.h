/* copy.h - copying with ordinary vector loads and stores.
 *
 * For more than about 2 KiB memcpy uses `rep movsb` on CPUs that claim to do it fast, and some (Zen 3 and 4) then take
 * up to 19 times as long when the destination lies a few bytes after the source modulo 4096: just as memory of malloc
 * and page-aligned staging areas lie. */
#ifndef GW_TRANSPORT_COPY_H
#define GW_TRANSPORT_COPY_H

#include "base/reduce.h"

#include <stdint.h>
#include <string.h>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

/* Into several destinations at once; those that are the source itself are fine. */
static inline void gw_copy_push(void *const *dst, int destinations, const void *src, size_t bytes) {
    /* The largest of one number is that number. */
    gw_reduce_push((gw_reduction){GW_U8, GW_MAX, 1}, dst, destinations, &src, 1, bytes);
}

static inline void gw_copy(void *dst, const void *src, size_t bytes) {
    if (bytes <= 2048) memcpy(dst, src, bytes);
    else gw_copy_push(&dst, 1, src, bytes);
}

/* Past the cache: it stays in nobody's, and is in memory before anything that is stored later is seen. dst is a
 * multiple of 16. */
static inline void gw_copy_past(void *dst, const void *src, size_t bytes) {
    size_t at = 0;
#if defined(__SSE2__)
    for (; at + 64 <= bytes; at += 64)
        for (size_t lane = at; lane < at + 64; lane += 16)
            _mm_stream_si128((__m128i *)(void *)((uint8_t *)dst + lane),
                             _mm_loadu_si128((const __m128i *)(const void *)((const uint8_t *)src + lane)));
    _mm_sfence();
#endif
    gw_copy((uint8_t *)dst + at, (const uint8_t *)src + at, bytes - at);
}

#endif
