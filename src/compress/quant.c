/* quant.c - see quant.h. The bits of the coin are placed in the mantissa of a float in [2^(b-1), 2^(b-1)+1). This adds
 * the offset of the code and a uniform number in [0, 1) at once, so one addition and one truncation do the rounding. */
#include "compress/quant.h"

#include "base/cpu.h"
#include "base/rng.h"
#include "compress/kernels.h"

#include <math.h>

#define GROUP GW_QUANT_GROUP
#define LANES 8 /* counters of a group */

/* 2^(bits-1) + coin/65536 + 2^-17 (at 8 bits a float has no room for the last). */
static inline uint32_t dither_base(int bits) {
    int exponent = bits - 1, shift = 23 - exponent - 16;
    return (uint32_t)(127 + exponent) << 23 | (shift ? UINT32_C(1) << (shift - 1) : 0);
}

static inline int dither_shift(int bits) { return 8 - bits; }

/* One bit: x in [-0.5, 0.5] is moved to [0, 1], so that the code 0 stands for -1 and 1 for 1. */
static inline float code_shift(int bits) { return bits == 1 ? 0.5f : 0.0f; }
static inline int code_first(int bits) { return bits == 1 ? 1 : 0; }

void gw_quant_coins(uint64_t key, uint64_t group, uint16_t coin[GROUP]) {
    for (unsigned lane = 0; lane < LANES; lane++) {
        uint32_t word[4];
        gw_philox(key, group * LANES + lane, 0, word);
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
    float dither = gw_float_of_bits(dither_base(bits) | (uint32_t)coin << dither_shift(bits));
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

#if defined(__x86_64__)
#include <immintrin.h>

#define AVX2 __attribute__((target("avx2")))
#define INLINE AVX2 static inline __attribute__((always_inline))

#define ROUNDS 10
typedef struct round_keys {
    __m256i k0[ROUNDS], k1[ROUNDS];
} round_keys;

AVX2 static void spread_keys(round_keys *keys, uint64_t key) {
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    for (int r = 0; r < ROUNDS; r++) {
        keys->k0[r] = _mm256_set1_epi32((int)k0);
        keys->k1[r] = _mm256_set1_epi32((int)k1);
        k0 += UINT32_C(0x9E3779B9);
        k1 += UINT32_C(0xBB67AE85);
    }
}

/* The state of Philox for four counters, one in each 64-bit lane; only the lower halves are used. */
typedef struct philox4 {
    __m256i x0, x1, x2, x3;
} philox4;

INLINE void philox4_round(philox4 *s, __m256i k0, __m256i k1) {
    __m256i p0 = _mm256_mul_epu32(s->x0, _mm256_set1_epi64x(INT64_C(0xD2511F53)));
    __m256i p1 = _mm256_mul_epu32(s->x2, _mm256_set1_epi64x(INT64_C(0xCD9E8D57)));
    s->x0 = _mm256_xor_si256(_mm256_srli_epi64(p1, 32), _mm256_xor_si256(s->x1, k0));
    s->x2 = _mm256_xor_si256(_mm256_srli_epi64(p0, 32), _mm256_xor_si256(s->x3, k1));
    s->x1 = p1;
    s->x3 = p0;
}

INLINE philox4 philox4_start(__m256i counter) {
    __m256i zero = _mm256_setzero_si256();
    return (philox4){counter, _mm256_srli_epi64(counter, 32), zero, zero};
}

INLINE __m256i interleaved(__m256i even, __m256i odd) {
    return _mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xaa);
}

/* word[w]: word w of the eight counters of the group. Unrolled by hand: in loops, rounds would wait for each other. */
INLINE void group_words(const round_keys *keys, uint64_t group, __m256i word[4]) {
    __m256i base = _mm256_set1_epi64x((long long)(group * LANES));
    philox4 even = philox4_start(_mm256_add_epi64(base, _mm256_setr_epi64x(0, 2, 4, 6)));
    philox4 odd = philox4_start(_mm256_add_epi64(base, _mm256_setr_epi64x(1, 3, 5, 7)));
#define ROUND(r) philox4_round(&even, keys->k0[r], keys->k1[r]), philox4_round(&odd, keys->k0[r], keys->k1[r])
    ROUND(0), ROUND(1), ROUND(2), ROUND(3), ROUND(4), ROUND(5), ROUND(6), ROUND(7), ROUND(8), ROUND(9);
#undef ROUND
    word[0] = interleaved(even.x0, odd.x0);
    word[1] = interleaved(even.x1, odd.x1);
    word[2] = interleaved(even.x2, odd.x2);
    word[3] = interleaved(even.x3, odd.x3);
}

INLINE __m256i codes8(int bits, const float *x, __m256 inverse, __m256 limit, __m256i coins) {
    __m256 scaled = _mm256_mul_ps(_mm256_loadu_ps(x), inverse);
    scaled = _mm256_min_ps(_mm256_max_ps(scaled, _mm256_sub_ps(_mm256_setzero_ps(), limit)), limit);
    if (bits == 1) scaled = _mm256_add_ps(scaled, _mm256_set1_ps(0.5f));
    __m256i dither = _mm256_or_si256(coins, _mm256_set1_epi32((int)dither_base(bits)));
    __m256i code = _mm256_cvttps_epi32(_mm256_add_ps(scaled, _mm256_castsi256_ps(dither)));
    return bits == 1 ? _mm256_sub_epi32(code, _mm256_set1_epi32(1)) : code;
}

/* Codes of 16 elements: their coins are the lower and the upper halves of the words. */
INLINE void codes16(int bits, const float *x, __m256 inverse, __m256 limit, __m256i word, __m256i q[2]) {
    const int shift = dither_shift(bits);
    const __m256i mask = _mm256_set1_epi32(0xffff << shift);
    q[0] = codes8(bits, x, inverse, limit, _mm256_and_si256(_mm256_slli_epi32(word, shift), mask));
    q[1] = codes8(bits, x + 8, inverse, limit, _mm256_and_si256(_mm256_srli_epi32(word, 16 - shift), mask));
}

/* 32 codes of 32 bits to 32 bytes in order. */
INLINE __m256i bytes32(__m256i a, __m256i b, __m256i c, __m256i d) {
    __m256i packed = _mm256_packus_epi16(_mm256_packs_epi32(a, b), _mm256_packs_epi32(c, d));
    return _mm256_permutevar8x32_epi32(packed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

#define JOIN(a, b, shift) _mm256_or_si256(a, _mm256_slli_epi32(b, shift))

INLINE void store_codes(int bits, const __m256i q[8], uint8_t *out) {
    if (bits == 8) {
        _mm256_storeu_si256((__m256i *)out, bytes32(q[0], q[1], q[2], q[3]));
        _mm256_storeu_si256((__m256i *)(out + 32), bytes32(q[4], q[5], q[6], q[7]));
    } else if (bits == 4) {
        __m256i all = bytes32(JOIN(q[0], q[4], 4), JOIN(q[1], q[5], 4), JOIN(q[2], q[6], 4), JOIN(q[3], q[7], 4));
        _mm256_storeu_si256((__m256i *)out, all);
    } else if (bits == 2) {
        __m256i a = _mm256_or_si256(JOIN(q[0], q[2], 2), _mm256_slli_epi32(JOIN(q[4], q[6], 2), 4));
        __m256i b = _mm256_or_si256(JOIN(q[1], q[3], 2), _mm256_slli_epi32(JOIN(q[5], q[7], 2), 4));
        _mm_storeu_si128((__m128i *)out, _mm256_castsi256_si128(bytes32(a, b, a, b)));
    } else {
        __m256i low = _mm256_or_si256(JOIN(q[0], q[1], 1), _mm256_slli_epi32(JOIN(q[2], q[3], 1), 2));
        __m256i high = _mm256_or_si256(JOIN(q[4], q[5], 1), _mm256_slli_epi32(JOIN(q[6], q[7], 1), 2));
        __m256i all = JOIN(low, high, 4);
        _mm_storel_epi64((__m128i *)out, _mm256_castsi256_si128(bytes32(all, all, all, all)));
    }
}

/* The caller has just read these elements; prefetch the next block. */
INLINE void fetch_ahead(const float *x) {
    _mm_prefetch((const char *)x, _MM_HINT_T0);
    _mm_prefetch((const char *)(x + 16), _MM_HINT_T0);
    _mm_prefetch((const char *)(x + 32), _MM_HINT_T0);
    _mm_prefetch((const char *)(x + 48), _MM_HINT_T0);
}

INLINE size_t pack_bits(int bits, const float *x, size_t count, float inverse, float limit, uint64_t key,
                        uint64_t first, uint8_t *out) {
    round_keys keys;
    spread_keys(&keys, key);
    __m256 factor = _mm256_set1_ps(inverse), most = _mm256_set1_ps(limit);
    size_t i = 0;
    for (; i + GROUP <= count; i += GROUP) {
        __m256i word[4], q[8];
        fetch_ahead(x + i + count);
        group_words(&keys, (first + i) / GROUP, word);
        codes16(bits, x + i, factor, most, word[0], q);
        codes16(bits, x + i + 16, factor, most, word[1], q + 2);
        codes16(bits, x + i + 32, factor, most, word[2], q + 4);
        codes16(bits, x + i + 48, factor, most, word[3], q + 6);
        store_codes(bits, q, out + i * (size_t)bits / 8);
    }
    return i;
}

AVX2 static size_t pack_avx2(int bits, const float *x, size_t count, float inverse, float limit, uint64_t key,
                             uint64_t first, uint8_t *out) {
    switch (bits) {
    case 1: return pack_bits(1, x, count, inverse, limit, key, first, out);
    case 2: return pack_bits(2, x, count, inverse, limit, key, first, out);
    case 4: return pack_bits(4, x, count, inverse, limit, key, first, out);
    default: return pack_bits(8, x, count, inverse, limit, key, first, out);
    }
}

/* Adds the levels that stand at bits [slot*bits, +bits) of eight widened bytes. */
INLINE void add8(int bits, __m256i widened, int slot, __m256 unit, float *sum) {
    __m256i code = _mm256_and_si256(_mm256_srli_epi32(widened, slot * bits), _mm256_set1_epi32((1 << bits) - 1));
    if (bits == 1) code = _mm256_sub_epi32(_mm256_slli_epi32(code, 1), _mm256_set1_epi32(1));
    else code = _mm256_sub_epi32(code, _mm256_set1_epi32(1 << (bits - 1)));
    __m256 value = _mm256_mul_ps(_mm256_cvtepi32_ps(code), unit);
    _mm256_storeu_ps(sum, _mm256_add_ps(_mm256_loadu_ps(sum), value));
}

INLINE size_t unpack_bits(int bits, const uint8_t *codes, size_t count, float unit, float *sum) {
    __m256 factor = _mm256_set1_ps(unit);
    const int stride = GROUP * bits / 8;
    size_t i = 0;
    for (; i + GROUP <= count; i += GROUP, codes += stride) {
        for (int j = 0; j < stride; j += 8) {
            __m256i widened = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(codes + j)));
            for (int slot = 0; slot < 8 / bits; slot++) add8(bits, widened, slot, factor, sum + i + slot * stride + j);
        }
    }
    return i;
}

AVX2 static size_t unpack_avx2(int bits, const uint8_t *codes, size_t count, float unit, float *sum) {
    switch (bits) {
    case 1: return unpack_bits(1, codes, count, unit, sum);
    case 2: return unpack_bits(2, codes, count, unit, sum);
    case 4: return unpack_bits(4, codes, count, unit, sum);
    default: return unpack_bits(8, codes, count, unit, sum);
    }
}
#endif

void gw_quant_pack(int bits, const float *x, size_t count, float inverse, float limit, uint64_t key, uint64_t first,
                   uint8_t *out) {
    size_t done = 0;
#if defined(__x86_64__)
    if (gw_cpu() >= GW_CPU_AVX2) done = pack_avx2(bits, x, count, inverse, limit, key, first, out);
#endif
    for (; done < count; done += GROUP) {
        size_t length = count - done < GROUP ? count - done : GROUP;
        pack_group(bits, x + done, length, inverse, limit, key, (first + done) / GROUP, out + done * (size_t)bits / 8);
    }
}

void gw_quant_unpack_add(int bits, const uint8_t *codes, size_t count, float unit, float *sum) {
    size_t done = 0;
#if defined(__x86_64__)
    if (gw_cpu() >= GW_CPU_AVX2) done = unpack_avx2(bits, codes, count, unit, sum);
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
