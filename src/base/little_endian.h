/* little_endian.h - integers as little-endian bytes, whatever the machine's byte order. */
#ifndef GW_BASE_LITTLE_ENDIAN_H
#define GW_BASE_LITTLE_ENDIAN_H

#include <stdint.h>

static inline void gw_le_put(uint8_t *at, uint64_t value, int bytes) {
    for (int i = 0; i < bytes; i++) at[i] = (uint8_t)(value >> (8 * i));
}

static inline uint64_t gw_le_get(const uint8_t *at, int bytes) {
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++) value |= (uint64_t)at[i] << (8 * i);
    return value;
}

static inline uint16_t gw_le_get16(const uint8_t *at) { return (uint16_t)gw_le_get(at, 2); }
static inline uint32_t gw_le_get32(const uint8_t *at) { return (uint32_t)gw_le_get(at, 4); }
static inline uint64_t gw_le_get64(const uint8_t *at) { return gw_le_get(at, 8); }

#endif
