/* elias.h - codes levels that are mostly zero. Each level that is not zero: gamma(zeros before it + 1), a sign bit (1:
 * negative), gamma(magnitude). Zeros at the end: gamma(how many + 1), or nothing where there are none. Filled up to a
 * byte with zeros. gamma(n) is floor(log2 n) zeros, then n from its highest bit (Elias 1975). Bits fill bytes from the
 * lowest. */
#ifndef GW_COMPRESS_ELIAS_H
#define GW_COMPRESS_ELIAS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The most bytes that `count` values of magnitude up to `levels` take. */
size_t gw_elias_bound(size_t count, int levels);
/* Returns the bytes written. */
size_t gw_elias_write(const int8_t *level, size_t count, uint8_t *out);
/* False where the bits end too early, go past count values or above levels. */
bool gw_elias_read(const uint8_t *in, size_t bytes, int levels, int8_t *level, size_t count, size_t *used);

#endif
