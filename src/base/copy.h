/* copy.h - copying with ordinary vector loads and stores.
 *
 * For more than about 2 KiB, memcpy uses `rep movsb` on CPUs that advertise it as fast. Some of them (Zen 3 and 4) then
 * take up to 19 times as long when the destination lies a few bytes after the source modulo 4096. That is the usual
 * case between memory of malloc and page-aligned staging areas. */
#ifndef GW_BASE_COPY_H
#define GW_BASE_COPY_H

#include "base/reduce.h"

#include <stdint.h>
#include <string.h>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

/* Copies into several destinations at once; a destination may be the source itself. */
static inline void gw_copy_push(void *const *dst, int destinations, const void *src, size_t bytes) {
    /* The maximum of a single operand is the operand. */
    gw_reduction maximum = {.dtype = GW_U8, .op = GW_MAX, .world = 1};
    gw_reduce_push(maximum, dst, destinations, &src, 1, bytes, true);
}

static inline void gw_copy(void *dst, const void *src, size_t bytes) {
    if (bytes <= 2048) memcpy(dst, src, bytes);
    else gw_copy_push(&dst, 1, src, bytes);
}

/* Copies past the cache (non-temporal stores): the data stays in no cache, and is in memory before any later store is
 * visible. dst is aligned to 16 bytes. */
static inline void gw_copy_nontemporal(void *dst, const void *src, size_t bytes) {
    size_t at = 0;
#if defined(__SSE2__)
    for (; at + 64 <= bytes; at += 64)
        for (size_t offset = at; offset < at + 64; offset += 16)
            _mm_stream_si128((__m128i *)(void *)((uint8_t *)dst + offset),
                             _mm_loadu_si128((const __m128i *)(const void *)((const uint8_t *)src + offset)));
    _mm_sfence();
#endif
    gw_copy((uint8_t *)dst + at, (const uint8_t *)src + at, bytes - at);
}

#endif
