/* quant.h - stochastic rounding to 1, 2, 4 or 8 bits and back: the arithmetic of QSGD and TernGrad.
 *
 * The coin of element i (its number in the tensor) is 16 bits of Philox with 7 rounds: group i/64 uses counters
 * 8*(i/64) to +7; the element's counter is i%8 of those, its word (i%64)/16, the half of the word (i/8)%2. So it
 * depends on nothing but the key and i, and a group of 64 is eight blocks side by side, which suits vector registers. A
 * coin has a resolution of 2^-16, rounded to the middle: a probability is off by at most 2^-17.
 *
 * Packing of a group of m <= 64 elements: with s = ceil(m*bits/8), byte j holds elements j, j+s, j+2s, ... of the
 * group, the first in its lowest bits. */
#ifndef GW_COMPRESS_QUANT_H
#define GW_COMPRESS_QUANT_H

#include <stddef.h>
#include <stdint.h>

#define GW_QUANT_GROUP 64

static inline size_t gw_quant_bytes(int bits, size_t count) {
    size_t whole = count / GW_QUANT_GROUP, rest = count % GW_QUANT_GROUP;
    return whole * GW_QUANT_GROUP * (size_t)bits / 8 + (rest * (size_t)bits + 7) / 8;
}

/* The largest level: codes stand for -levels..levels (1 bit: -1 or 1). */
static inline int gw_quant_levels(int bits) { return bits == 1 ? 1 : (1 << (bits - 1)) - 1; }

/* code = 2^(bits-1) + floor(x*inverse + coin), with x*inverse first cut to [-limit, limit]; limit is at most the
 * number of levels. One bit: limit is 0.5, and the code floor(x*inverse + 0.5 + coin). first is a multiple of the
 * group. */
void gw_quant_pack(int bits, const float *x, size_t count, float inverse, float limit, uint64_t key, uint64_t first,
                   uint8_t *out);
/* sum += unit * level */
void gw_quant_unpack_add(int bits, const uint8_t *codes, size_t count, float unit, float *sum);

#define GW_QUANT_FIT_MAX 2048 /* elements */

/* Under feedback a codec must not lose more than the input, or residuals grow without bound; unbiased rounding to few
 * levels does lose more. The unit of least loss for the given levels never does: dot(x, level) / dot(level, level).
 * Returns `unit` where that is not a number. */
float gw_quant_fit(const float *x, const float *level, size_t count, float unit);
float gw_quant_fit_codes(int bits, const float *x, const uint8_t *codes, size_t count, float unit);

/* The 64 coins of a group, in element order: the definition above, for other coders. */
void gw_quant_coins(uint64_t key, uint64_t group, uint16_t coin[GW_QUANT_GROUP]);

#endif
