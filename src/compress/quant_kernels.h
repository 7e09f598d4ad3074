/* quant_kernels.h - the arithmetic behind quant.h, once for each CPU level.
 *
 * The bits of the coin are placed in the mantissa of a float in [2^(b-1), 2^(b-1)+1). This adds the offset of the code
 * and a uniform number in [0, 1) at once, so one addition and one truncation do the rounding. */
#ifndef GW_COMPRESS_QUANT_KERNELS_H
#define GW_COMPRESS_QUANT_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#define GW_QUANT_COUNTERS 8 /* of Philox, in a group */
#define GW_QUANT_ROUNDS 7   /* of Philox */
#define GW_QUANT_AHEAD 2048 /* elements that are prefetched: the hardware stops at the end of a page */

/* 2^(bits-1) + coin/65536 + 2^-17 (at 8 bits a float has no room for the last). */
static inline uint32_t gw_quant_dither(int bits) {
    int exponent = bits - 1, shift = 23 - exponent - 16;
    return (uint32_t)(127 + exponent) << 23 | (shift ? UINT32_C(1) << (shift - 1) : 0);
}

static inline int gw_quant_coin_shift(int bits) { return 8 - bits; }

/* These handle whole groups and return how many elements that was. */
size_t gw_quant_pack_avx2(int bits, const float *x, size_t count, float inverse, float limit, uint64_t key,
                          uint64_t first, uint8_t *out);
size_t gw_quant_pack_avx512(int bits, const float *x, size_t count, float inverse, float limit, uint64_t key,
                            uint64_t first, uint8_t *out);
size_t gw_quant_unpack_avx2(int bits, const uint8_t *codes, size_t count, float unit, float *sum);

#endif
