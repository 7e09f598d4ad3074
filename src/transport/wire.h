/* wire.h - whole numbers in little-endian bytes, whatever the machine's own order. */
#ifndef GW_TRANSPORT_WIRE_H
#define GW_TRANSPORT_WIRE_H

#include <stdint.h>

static inline void gw_put(uint8_t *at, uint64_t value, int bytes) {
    for (int i = 0; i < bytes; i++) at[i] = (uint8_t)(value >> (8 * i));
}

static inline uint64_t gw_get(const uint8_t *at, int bytes) {
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++) value |= (uint64_t)at[i] << (8 * i);
    return value;
}

static inline uint16_t gw_get16(const uint8_t *at) { return (uint16_t)gw_get(at, 2); }
static inline uint32_t gw_get32(const uint8_t *at) { return (uint32_t)gw_get(at, 4); }
static inline uint64_t gw_get64(const uint8_t *at) { return gw_get(at, 8); }

#endif
