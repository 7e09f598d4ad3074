/* float8.h - f8e4m3 and f8e5m2 as bits: scalar conversions, inlined for use in loops, the same bits as PyTorch's casts
 * of float8_e4m3fn and float8_e5m2 (Micikevicius et al. 2022, FP8 Formats for Deep Learning).
 *
 * Rounding is to nearest even. f8e4m3 has no infinity: whatever rounds to more than 448, and infinity, becomes 448, as
 * in PyTorch 2.13. In f8e5m2 whatever rounds to more than 57344 becomes infinity. A NaN becomes the NaN of its sign
 * with all bits set. */
#ifndef GW_BASE_FLOAT8_H
#define GW_BASE_FLOAT8_H

#include "base/half_bits.h"

/* A format by the number of its mantissa bits and by the f32 exponent field of its smallest normal number. */
typedef struct gw_float8 {
    int mantissa;
    uint32_t least;     /* f32 exponent of the smallest normal number */
    uint32_t overflows; /* f32 bits of the smallest number whose exponent the format does not have as a number */
    uint32_t special;   /* the first code that is not a finite number */
    uint32_t overflow;  /* code of what is too large: the largest number, or infinity */
} gw_float8;

#define GW_FLOAT8_E4M3                                                                                                 \
    ((gw_float8){.mantissa = 3, .least = 121, .overflows = 0x43f00000, .special = 0x7f, .overflow = 0x7e})
#define GW_FLOAT8_E5M2                                                                                                 \
    ((gw_float8){.mantissa = 2, .least = 113, .overflows = 0x47800000, .special = 0x7c, .overflow = 0x7c})

/* A subnormal number has the exponent field 0 and no leading 1. Given the exponent of the smallest normal number, it
 * has a leading 1 too many, which is subtracted. */
static inline float gw_float8_widen(gw_float8 f, uint8_t code) {
    uint32_t sign = (uint32_t)(code & 0x80) << 24, size = (uint32_t)(code & 0x7f) << (23 - f.mantissa);
    if ((code & 0x7f) > f.special || (code & 0x7f) == 0x7f) return gw_bits_float(sign | 0x7fc00000 | size);
    if ((code & 0x7f) == f.special) return gw_bits_float(sign | 0x7f800000);
    if (size >> 23) return gw_bits_float(sign | (size + ((f.least - 1) << 23)));
    float value = gw_bits_float(size + (f.least << 23)) - gw_bits_float(f.least << 23);
    return gw_bits_float(sign | gw_float_bits(value));
}

static inline uint8_t gw_float8_round(gw_float8 f, float value) {
    uint32_t bits = gw_float_bits(value), sign = bits >> 24 & 0x80, size = bits & 0x7fffffff;
    int dropped = 23 - f.mantissa;
    if (size > 0x7f800000) return (uint8_t)(sign | 0x7f);
    if (size >= f.overflows) return (uint8_t)(sign | f.overflow);
    if (size < f.least << 23) { /* the last bit of this f32 is worth as much as that of a subnormal result */
        uint32_t magic = (f.least + (uint32_t)dropped) << 23;
        return (uint8_t)(sign | (gw_float_bits(gw_bits_float(size) + gw_bits_float(magic)) - magic));
    }
    uint32_t half = (UINT32_C(1) << (dropped - 1)) - 1 + (size >> dropped & 1);
    uint32_t code = (size + half - ((f.least - 1) << 23)) >> dropped;
    return (uint8_t)(sign | (code < f.overflow ? code : f.overflow)); /* the last number may be rounded up */
}

static inline float gw_f8e4m3_to_f32(uint8_t code) { return gw_float8_widen(GW_FLOAT8_E4M3, code); }
static inline uint8_t gw_f32_to_f8e4m3(float value) { return gw_float8_round(GW_FLOAT8_E4M3, value); }
static inline float gw_f8e5m2_to_f32(uint8_t code) { return gw_float8_widen(GW_FLOAT8_E5M2, code); }
static inline uint8_t gw_f32_to_f8e5m2(float value) { return gw_float8_round(GW_FLOAT8_E5M2, value); }

#endif
