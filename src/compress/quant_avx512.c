/* quant_avx512.c - see quant_kernels.h. A group's eight counters are the eight lanes of one register. */
#include "compress/quant_kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>

#include "compress/quant.h"

#define GROUP GW_QUANT_GROUP
#define AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))
#define INLINE AVX512 static inline __attribute__((always_inline))
#define XOR3 0x96
#define AND_OR 0xea /* (a & b) | c */

typedef struct round_keys {
    __m512i k0[GW_QUANT_ROUNDS], k1[GW_QUANT_ROUNDS];
} round_keys;

/* The state of Philox for eight counters; only the lower halves of the lanes are used. */
typedef struct philox8 {
    __m512i x0, x1, x2, x3;
} philox8;

INLINE void spread_keys(round_keys *keys, uint64_t key) {
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
#pragma GCC unroll 8
    for (int r = 0; r < GW_QUANT_ROUNDS; r++) {
        keys->k0[r] = _mm512_set1_epi32((int)(k0 + (uint32_t)r * UINT32_C(0x9E3779B9)));
        keys->k1[r] = _mm512_set1_epi32((int)(k1 + (uint32_t)r * UINT32_C(0xBB67AE85)));
    }
}

/* As a shuffle: multiplications already fill the port of shifts. */
INLINE __m512i upper_halves(__m512i x) { return _mm512_castps_si512(_mm512_movehdup_ps(_mm512_castsi512_ps(x))); }

INLINE void philox8_round(philox8 *s, __m512i k0, __m512i k1) {
    __m512i p0 = _mm512_mul_epu32(s->x0, _mm512_set1_epi64(INT64_C(0xD2511F53)));
    __m512i p1 = _mm512_mul_epu32(s->x2, _mm512_set1_epi64(INT64_C(0xCD9E8D57)));
    s->x0 = _mm512_ternarylogic_epi32(upper_halves(p1), s->x1, k0, XOR3);
    s->x2 = _mm512_ternarylogic_epi32(upper_halves(p0), s->x3, k1, XOR3);
    s->x1 = p1;
    s->x3 = p0;
}

/* The first round is shorter: the upper half of the counter is 0, so one product is. */
INLINE philox8 group_words(const round_keys *keys, uint64_t group) {
    __m512i lane = _mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7);
    __m512i counter = _mm512_add_epi64(_mm512_set1_epi64((long long)(group * GW_QUANT_COUNTERS)), lane);
    __m512i product = _mm512_mul_epu32(counter, _mm512_set1_epi64(INT64_C(0xD2511F53)));
    philox8 s = {.x0 = _mm512_xor_si512(upper_halves(counter), keys->k0[0]),
                 .x1 = _mm512_setzero_si512(),
                 .x2 = _mm512_xor_si512(upper_halves(product), keys->k1[0]),
                 .x3 = product};
#pragma GCC unroll 8
    for (int r = 1; r < GW_QUANT_ROUNDS; r++) philox8_round(&s, keys->k0[r], keys->k1[r]);
    return s;
}

/* Codes of 16 elements. The coins of the first 8 are the lower halves of the words, those of the others the upper
 * halves: a rotation brings each to its place in the mantissa. */
INLINE __m512i codes16(int bits, const float *x, __m512 inverse, __m512 limit, __m512i words) {
    const int low = gw_quant_coin_shift(bits), high = low + 16;
    const __m512i twice = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 0, 2, 4, 6, 8, 10, 12, 14);
    const __m512i turn =
        _mm512_setr_epi32(low, low, low, low, low, low, low, low, high, high, high, high, high, high, high, high);
    __m512i coins = _mm512_rolv_epi32(_mm512_permutexvar_epi32(twice, words), turn);
    __m512i dither = _mm512_ternarylogic_epi32(coins, _mm512_set1_epi32(0xffff << low),
                                               _mm512_set1_epi32((int)gw_quant_dither(bits)), AND_OR);
    __m512 scaled = _mm512_mul_ps(_mm512_loadu_ps(x), inverse);
    scaled = _mm512_min_ps(_mm512_max_ps(scaled, _mm512_sub_ps(_mm512_setzero_ps(), limit)), limit);
    if (bits == 1) scaled = _mm512_add_ps(scaled, _mm512_set1_ps(0.5f));
    __m512i code = _mm512_cvttps_epi32(_mm512_add_ps(scaled, _mm512_castsi512_ps(dither)));
    return bits == 1 ? _mm512_sub_epi32(code, _mm512_set1_epi32(1)) : code;
}

#define JOIN(a, b, shift) _mm512_or_si512(a, _mm512_slli_epi32(b, shift))

INLINE void store16(__m512i bytes, uint8_t *out) { _mm_storeu_si128((__m128i *)out, _mm512_cvtepi32_epi8(bytes)); }

INLINE void store_codes(int bits, const __m512i q[4], uint8_t *out) {
    if (bits == 8) {
        for (int i = 0; i < 4; i++) store16(q[i], out + 16 * i);
    } else if (bits == 4) {
        store16(JOIN(q[0], q[2], 4), out);
        store16(JOIN(q[1], q[3], 4), out + 16);
    } else {
        __m512i all = JOIN(JOIN(q[0], q[1], 2), JOIN(q[2], q[3], 2), 4);
        if (bits == 2) {
            store16(all, out);
            return;
        }
        __m256i upper = _mm256_slli_epi32(_mm512_extracti64x4_epi64(all, 1), 1);
        __m256i both = _mm256_or_si256(_mm512_castsi512_si256(all), upper);
        _mm_storel_epi64((__m128i *)out, _mm256_cvtepi32_epi8(both));
    }
}

INLINE void fetch_ahead(const float *x) {
    for (int line = 0; line < 4; line++) _mm_prefetch((const char *)(x + 16 * line), _MM_HINT_T0);
}

INLINE size_t pack_bits(int bits, const float *x, size_t count, float inverse, float limit, uint64_t key,
                        uint64_t first, uint8_t *out) {
    round_keys keys;
    spread_keys(&keys, key);
    __m512 factor = _mm512_set1_ps(inverse), most = _mm512_set1_ps(limit);
    size_t i = 0;
    for (; i + GROUP <= count; i += GROUP) {
        fetch_ahead(x + i + GW_QUANT_AHEAD);
        philox8 words = group_words(&keys, (first + i) / GROUP);
        __m512i q[4] = {codes16(bits, x + i, factor, most, words.x0), codes16(bits, x + i + 16, factor, most, words.x1),
                        codes16(bits, x + i + 32, factor, most, words.x2),
                        codes16(bits, x + i + 48, factor, most, words.x3)};
        store_codes(bits, q, out + i * (size_t)bits / 8);
    }
    return i;
}

AVX512 size_t gw_quant_pack_avx512(int bits, const float *x, size_t count, float inverse, float limit, uint64_t key,
                                   uint64_t first, uint8_t *out) {
    switch (bits) {
    case 1: return pack_bits(1, x, count, inverse, limit, key, first, out);
    case 2: return pack_bits(2, x, count, inverse, limit, key, first, out);
    case 4: return pack_bits(4, x, count, inverse, limit, key, first, out);
    default: return pack_bits(8, x, count, inverse, limit, key, first, out);
    }
}
#endif
