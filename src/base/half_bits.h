/* half_bits.h - the scalar conversions of half.h, inlined for use in loops. They give the same bits as the F16C
 * instructions, NaN payloads included. */
#ifndef GW_BASE_HALF_BITS_H
#define GW_BASE_HALF_BITS_H

#include <stdint.h>
#include <string.h>

static inline uint32_t gw_float_bits(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float gw_bits_float(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline float gw_f16_widen(uint16_t bits) {
    uint32_t sign = (uint32_t)(bits & 0x8000) << 16, exponent = bits >> 10 & 31, mantissa = bits & 0x3ff;
    if (exponent == 31) return gw_bits_float(sign | 0x7f800000 | mantissa << 13 | (mantissa ? 0x400000 : 0));
    if (exponent == 0) return gw_bits_float(sign | gw_float_bits((float)mantissa * 0x1p-24f));
    return gw_bits_float(sign | (exponent + 112) << 23 | mantissa << 13);
}

static inline uint16_t gw_f16_round(float value) {
    uint32_t bits = gw_float_bits(value), sign = bits >> 16 & 0x8000, size = bits & 0x7fffffff;
    if (size > 0x7f800000) return (uint16_t)(sign | 0x7e00 | (size >> 13 & 0x3ff));
    if (size >= 0x477ff000) return (uint16_t)(sign | 0x7c00); /* from 65520 on, infinity is nearest */
    if (size < 0x38800000) { /* subnormal: the last bit of a float near 0.5 is worth 2^-24, like the result's */
        return (uint16_t)(sign | (gw_float_bits(gw_bits_float(size) + 0.5f) - 0x3f000000));
    }
    return (uint16_t)(sign | (size + 0xfff + (size >> 13 & 1) - 0x38000000) >> 13);
}

static inline float gw_bf16_widen(uint16_t bits) { return gw_bits_float((uint32_t)bits << 16); }

static inline uint16_t gw_bf16_round(float value) {
    uint32_t bits = gw_float_bits(value);
    if ((bits & 0x7fffffff) > 0x7f800000) return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

#endif
