/* quant_avx2.c - see quant_kernels.h. */
#include "compress/quant_kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>
#include <string.h>

#include "compress/quant.h"

#define GROUP GW_QUANT_GROUP
#define AVX2 __attribute__((target("avx2")))
#define INLINE AVX2 static inline __attribute__((always_inline))

typedef struct round_keys {
    __m256i k0[GW_QUANT_ROUNDS], k1[GW_QUANT_ROUNDS];
} round_keys;

AVX2 static void spread_keys(round_keys *keys, uint64_t key) {
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    for (int r = 0; r < GW_QUANT_ROUNDS; r++) {
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

/* As a shuffle: multiplications already fill the ports of shifts. */
INLINE __m256i upper_halves(__m256i x) { return _mm256_castps_si256(_mm256_movehdup_ps(_mm256_castsi256_ps(x))); }

INLINE void philox4_round(philox4 *s, __m256i k0, __m256i k1) {
    __m256i p0 = _mm256_mul_epu32(s->x0, _mm256_set1_epi64x(INT64_C(0xD2511F53)));
    __m256i p1 = _mm256_mul_epu32(s->x2, _mm256_set1_epi64x(INT64_C(0xCD9E8D57)));
    s->x0 = _mm256_xor_si256(upper_halves(p1), _mm256_xor_si256(s->x1, k0));
    s->x2 = _mm256_xor_si256(upper_halves(p0), _mm256_xor_si256(s->x3, k1));
    s->x1 = p1;
    s->x3 = p0;
}

/* The first round: the upper half of the counter is 0, so one product is. */
INLINE philox4 philox4_start(__m256i counter, __m256i k0, __m256i k1) {
    __m256i product = _mm256_mul_epu32(counter, _mm256_set1_epi64x(INT64_C(0xD2511F53)));
    return (philox4){.x0 = _mm256_xor_si256(upper_halves(counter), k0),
                     .x1 = _mm256_setzero_si256(),
                     .x2 = _mm256_xor_si256(upper_halves(product), k1),
                     .x3 = product};
}

INLINE __m256i interleaved(__m256i even, __m256i odd) {
    return _mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xaa);
}

/* word[w]: word w of the eight counters of the group. Unrolled by hand: in loops, rounds would wait for each other. */
INLINE void group_words(const round_keys *keys, uint64_t group, __m256i word[4]) {
    __m256i base = _mm256_set1_epi64x((long long)(group * GW_QUANT_COUNTERS));
    philox4 even = philox4_start(_mm256_add_epi64(base, _mm256_setr_epi64x(0, 2, 4, 6)), keys->k0[0], keys->k1[0]);
    philox4 odd = philox4_start(_mm256_add_epi64(base, _mm256_setr_epi64x(1, 3, 5, 7)), keys->k0[0], keys->k1[0]);
#define ROUND(r) philox4_round(&even, keys->k0[r], keys->k1[r]), philox4_round(&odd, keys->k0[r], keys->k1[r])
    ROUND(1), ROUND(2), ROUND(3), ROUND(4), ROUND(5), ROUND(6);
#undef ROUND
    word[0] = interleaved(even.x0, odd.x0);
    word[1] = interleaved(even.x1, odd.x1);
    word[2] = interleaved(even.x2, odd.x2);
    word[3] = interleaved(even.x3, odd.x3);
}

/* 2 bits and more. What is too small is not cut here: bytes32 does so, also with a NaN. */
INLINE __m256i codes8(int bits, const float *x, __m256 inverse, __m256 limit, __m256i coins) {
    __m256 scaled = _mm256_mul_ps(_mm256_loadu_ps(x), inverse);
    scaled = _mm256_min_ps(limit, scaled); /* a NaN stays one */
    __m256i dither = _mm256_or_si256(coins, _mm256_set1_epi32((int)gw_quant_dither(bits)));
    return _mm256_cvttps_epi32(_mm256_add_ps(scaled, _mm256_castsi256_ps(dither)));
}

/* One bit: all bits of an element whose code is 1, without cutting x*inverse: what is cut has the same code. */
INLINE __m256i codes_one8(const float *x, __m256 inverse, __m256i coins) {
    __m256 scaled = _mm256_add_ps(_mm256_mul_ps(_mm256_loadu_ps(x), inverse), _mm256_set1_ps(0.5f));
    __m256i dither = _mm256_or_si256(coins, _mm256_set1_epi32((int)gw_quant_dither(1)));
    __m256 sum = _mm256_add_ps(scaled, _mm256_castsi256_ps(dither));
    return _mm256_castps_si256(_mm256_cmp_ps(sum, _mm256_set1_ps(2), _CMP_GE_OQ));
}

/* Codes of 16 elements: their coins are the lower and the upper halves of the words. */
INLINE void codes16(int bits, const float *x, __m256 inverse, __m256 limit, __m256i word, __m256i q[2]) {
    const int shift = gw_quant_coin_shift(bits);
    const __m256i mask = _mm256_set1_epi32(0xffff << shift);
    __m256i low = _mm256_and_si256(_mm256_slli_epi32(word, shift), mask);
    __m256i high = _mm256_and_si256(_mm256_srli_epi32(word, 16 - shift), mask);
    q[0] = bits == 1 ? codes_one8(x, inverse, low) : codes8(bits, x, inverse, limit, low);
    q[1] = bits == 1 ? codes_one8(x + 8, inverse, high) : codes8(bits, x + 8, inverse, limit, high);
}

/* 32 codes of 32 bits to 32 bytes in order; what is below `least` is the least code. */
INLINE __m256i bytes32(__m256i a, __m256i b, __m256i c, __m256i d, __m256i least) {
    __m256i packed = _mm256_packus_epi16(_mm256_packs_epi32(a, b), _mm256_packs_epi32(c, d));
    packed = _mm256_max_epu8(packed, least);
    return _mm256_permutevar8x32_epi32(packed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

/* Bit i of byte j becomes bit j of byte i (Warren: "Hacker's Delight", 7-3). */
INLINE uint64_t transposed(uint64_t x) {
    uint64_t t = (x ^ x >> 7) & UINT64_C(0x00aa00aa00aa00aa);
    x ^= t ^ t << 7;
    t = (x ^ x >> 14) & UINT64_C(0x0000cccc0000cccc);
    x ^= t ^ t << 14;
    t = (x ^ x >> 28) & UINT64_C(0x00000000f0f0f0f0);
    return x ^ t ^ t << 28;
}

INLINE void store_bits(const __m256i q[8], uint8_t *out) {
    uint64_t bits = 0;
    for (int i = 0; i < 8; i++) bits |= (uint64_t)(unsigned)_mm256_movemask_ps(_mm256_castsi256_ps(q[i])) << 8 * i;
    bits = transposed(bits);
    memcpy(out, &bits, sizeof bits);
}

INLINE void store_codes(int bits, const __m256i q[8], __m256i least, uint8_t *out) {
    if (bits == 1) {
        store_bits(q, out);
        return;
    }
    __m256i low = bytes32(q[0], q[1], q[2], q[3], least), high = bytes32(q[4], q[5], q[6], q[7], least);
    if (bits == 8) {
        _mm256_storeu_si256((__m256i *)out, low);
        _mm256_storeu_si256((__m256i *)(out + 32), high);
        return;
    }
    __m256i all = _mm256_or_si256(low, _mm256_slli_epi32(high, 4));
    if (bits == 4) {
        _mm256_storeu_si256((__m256i *)out, all);
    } else {
        __m128i upper = _mm_slli_epi32(_mm256_extracti128_si256(all, 1), 2);
        _mm_storeu_si128((__m128i *)out, _mm_or_si128(_mm256_castsi256_si128(all), upper));
    }
}

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
    __m256i least = _mm256_set1_epi8((char)((1 << (bits - 1)) - (int)limit)); /* more than one bit: limit is a level */
    size_t i = 0;
    for (; i + GROUP <= count; i += GROUP) {
        __m256i word[4], q[8];
        fetch_ahead(x + i + GW_QUANT_AHEAD);
        group_words(&keys, (first + i) / GROUP, word);
        codes16(bits, x + i, factor, most, word[0], q);
        codes16(bits, x + i + 16, factor, most, word[1], q + 2);
        codes16(bits, x + i + 32, factor, most, word[2], q + 4);
        codes16(bits, x + i + 48, factor, most, word[3], q + 6);
        store_codes(bits, q, least, out + i * (size_t)bits / 8);
    }
    return i;
}

AVX2 size_t gw_quant_pack_avx2(int bits, const float *x, size_t count, float inverse, float limit, uint64_t key,
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

AVX2 size_t gw_quant_unpack_avx2(int bits, const uint8_t *codes, size_t count, float unit, float *sum) {
    switch (bits) {
    case 1: return unpack_bits(1, codes, count, unit, sum);
    case 2: return unpack_bits(2, codes, count, unit, sum);
    case 4: return unpack_bits(4, codes, count, unit, sum);
    default: return unpack_bits(8, codes, count, unit, sum);
    }
}
#endif
