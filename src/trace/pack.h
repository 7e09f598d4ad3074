/* pack.h - numbers in a capture: varints (LEB128), seven bits per byte, lowest first; the top bit means that more bytes
 * follow. Signed numbers are zigzag-coded: 2n or -2n-1. Fixed-size numbers are little-endian. */
#ifndef GW_TRACE_PACK_H
#define GW_TRACE_PACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define GW_PACK_MAX 10 /* bytes of one number */

static inline uint8_t *gw_pack(uint8_t *at, uint64_t value) {
    for (; value >= 0x80; value >>= 7) *at++ = (uint8_t)(value | 0x80);
    *at++ = (uint8_t)value;
    return at;
}

static inline uint64_t gw_zigzag(int64_t value) { return (uint64_t)value << 1 ^ (uint64_t)(value >> 63); }
static inline int64_t gw_unzigzag(uint64_t value) { return (int64_t)(value >> 1 ^ (~(value & 1) + 1)); }

static inline void gw_pack_fixed(uint8_t *at, uint32_t value) {
    for (int i = 0; i < 4; i++) at[i] = (uint8_t)(value >> (8 * i));
}

static inline uint32_t gw_unpack_fixed(const uint8_t *at) {
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

/* The bytes to read. short_of: there were too few bytes, or a number was too long. */
typedef struct gw_unpacker {
    const uint8_t *at, *end;
    bool short_of;
} gw_unpacker;

static inline uint64_t gw_unpack(gw_unpacker *from) {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
        if (from->at == from->end) break;
        uint8_t byte = *from->at++;
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) return value;
    }
    from->short_of = true;
    return 0;
}

#endif
