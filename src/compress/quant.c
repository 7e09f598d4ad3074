/* quant.c - see quant.h. The plain reference; quant_kernels.h has the fast versions. */
#include "compress/quant.h"

#include "base/cpu.h"
#include "base/rng.h"
#include "compress/kernels.h"
#include "compress/quant_kernels.h"

#include <math.h>

#define GROUP GW_QUANT_GROUP
#define LANES GW_QUANT_COUNTERS

/* One bit: x in [-0.5, 0.5] is moved to [0, 1], so that the code 0 stands for -1 and 1 for 1. */
static inline float code_shift(int bits) { return bits == 1 ? 0.5f : 0.0f; }
static inline int code_first(int bits) { return bits == 1 ? 1 : 0; }

void gw_quant_coins(uint64_t key, uint64_t group, uint16_t coin[GROUP]) {
    for (unsigned lane = 0; lane < LANES; lane++) {
        uint32_t word[4];
        gw_philox7(key, group * LANES + lane, 0, word);
        for (int w = 0; w < 4; w++) {
            coin[16 * w + (int)lane] = (uint16_t)word[w];
            coin[16 * w + 8 + (int)lane] = (uint16_t)(word[w] >> 16);
        }
    }
}

static unsigned code_of(int bits, float x, float inverse, float limit, uint16_t coin) {
    float scaled = x * inverse;
    scaled = scaled > -limit ? scaled : -limit;
    scaled = scaled < limit ? scaled : limit;
    float dither = gw_float_of_bits(gw_quant_dither(bits) | (uint32_t)coin << gw_quant_coin_shift(bits));
    return (unsigned)(int)(scaled + code_shift(bits) + dither) - (unsigned)code_first(bits);
}

static void pack_group(int bits, const float *x, size_t count, float inverse, float limit, uint64_t key, uint64_t group,
                       uint8_t *out) {
    uint16_t coin[GROUP];
    gw_quant_coins(key, group, coin);
    size_t stride = gw_quant_bytes(bits, count);
    memset(out, 0, stride);
    for (size_t i = 0; i < count; i++) {
        out[i % stride] |= (uint8_t)(code_of(bits, x[i], inverse, limit, coin[i]) << (i / stride * (size_t)bits));
    }
}

static void unpack_group(int bits, const uint8_t *codes, size_t count, float unit, float *sum) {
    size_t stride = gw_quant_bytes(bits, count);
    unsigned mask = (1u << bits) - 1;
    for (size_t i = 0; i < count; i++) {
        int code = (int)(codes[i % stride] >> (i / stride * (size_t)bits) & mask);
        int level = bits == 1 ? 2 * code - 1 : code - (1 << (bits - 1));
        sum[i] += (float)level * unit;
    }
}

void gw_quant_pack(int bits, const float *x, size_t count, float inverse, float limit, uint64_t key, uint64_t first,
                   uint8_t *out) {
    size_t done = 0;
#if defined(__x86_64__)
    if (gw_cpu() >= GW_CPU_AVX512) done = gw_quant_pack_avx512(bits, x, count, inverse, limit, key, first, out);
    else if (gw_cpu() >= GW_CPU_AVX2) done = gw_quant_pack_avx2(bits, x, count, inverse, limit, key, first, out);
#endif
    for (; done < count; done += GROUP) {
        size_t length = count - done < GROUP ? count - done : GROUP;
        pack_group(bits, x + done, length, inverse, limit, key, (first + done) / GROUP, out + done * (size_t)bits / 8);
    }
}

void gw_quant_unpack_add(int bits, const uint8_t *codes, size_t count, float unit, float *sum) {
    size_t done = 0;
#if defined(__x86_64__)
    if (gw_cpu() >= GW_CPU_AVX2) done = gw_quant_unpack_avx2(bits, codes, count, unit, sum);
#endif
    for (; done < count; done += GROUP) {
        size_t length = count - done < GROUP ? count - done : GROUP;
        unpack_group(bits, codes + done * (size_t)bits / 8, length, unit, sum + done);
    }
}

float gw_quant_fit(const float *x, const float *level, size_t count, float unit) {
    double along = gw_kernel_dot(x, level, count), square = gw_kernel_dot(level, level, count);
    float fitted = square > 0 && along > 0 ? (float)(along / square) : 0.0f;
    return isfinite(along) && isfinite(unit) ? fitted : unit;
}

float gw_quant_fit_codes(int bits, const float *x, const uint8_t *codes, size_t count, float unit) {
    float level[GW_QUANT_FIT_MAX];
    memset(level, 0, count * sizeof *level);
    gw_quant_unpack_add(bits, codes, count, 1.0f, level);
    return gw_quant_fit(x, level, count, unit);
}
