/* kth_largest.c - the k-th largest of some numbers, by bisection of their bits: each pass compares all of them with a
 * guess, which vector registers do fast and without a branch that depends on the data. Cost: a pass for
 * each bit in which they differ. */
#include "base/cpu.h"
#include "compress/sparse.h"

static size_t at_least_plain(const uint32_t *a, size_t from, size_t count, uint32_t least) {
    size_t found = 0;
    for (size_t i = from; i < count; i++) found += a[i] >= least;
    return found;
}

/* Bits that some number has, and that every one has. */
typedef struct common {
    uint32_t any, every;
} common;

static common common_plain(const uint32_t *a, size_t from, size_t count) {
    common c = {0, UINT32_MAX};
    for (size_t i = from; i < count; i++) {
        c.any |= a[i];
        c.every &= a[i];
    }
    return c;
}

#if defined(__x86_64__)
#include <immintrin.h>

#define AVX2 __attribute__((target("avx2")))
#define AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))

AVX2 static size_t at_least_avx2(const uint32_t *a, size_t count, uint32_t least) {
    const __m256i below = _mm256_set1_epi32((int)least - 1);
    __m256i even = _mm256_setzero_si256(), odd = even;
    uint32_t lanes[8];
    size_t i = 0, found = 0;
    for (; i + 16 <= count; i += 16) {
        even = _mm256_sub_epi32(even, _mm256_cmpgt_epi32(_mm256_loadu_si256((const __m256i *)(a + i)), below));
        odd = _mm256_sub_epi32(odd, _mm256_cmpgt_epi32(_mm256_loadu_si256((const __m256i *)(a + i + 8)), below));
    }
    _mm256_storeu_si256((__m256i *)lanes, _mm256_add_epi32(even, odd));
    for (int lane = 0; lane < 8; lane++) found += lanes[lane];
    return found + at_least_plain(a, i, count, least);
}

AVX2 static common common_avx2(const uint32_t *a, size_t count) {
    __m256i any = _mm256_setzero_si256(), every = _mm256_set1_epi32(-1);
    uint32_t lanes[16];
    size_t i = 0;
    for (; i + 8 <= count; i += 8) {
        __m256i x = _mm256_loadu_si256((const __m256i *)(a + i));
        any = _mm256_or_si256(any, x);
        every = _mm256_and_si256(every, x);
    }
    _mm256_storeu_si256((__m256i *)lanes, any);
    _mm256_storeu_si256((__m256i *)(lanes + 8), every);
    common c = common_plain(a, i, count);
    for (int lane = 0; lane < 8; lane++) {
        c.any |= lanes[lane];
        c.every &= lanes[8 + lane];
    }
    return c;
}

AVX512 static size_t at_least_avx512(const uint32_t *a, size_t count, uint32_t least) {
    const __m512i bound = _mm512_set1_epi32((int)least), one = _mm512_set1_epi32(1);
    __m512i even = _mm512_setzero_si512(), odd = even;
    size_t i = 0;
    for (; i + 32 <= count; i += 32) {
        even = _mm512_mask_add_epi32(even, _mm512_cmpge_epu32_mask(_mm512_loadu_si512(a + i), bound), even, one);
        odd = _mm512_mask_add_epi32(odd, _mm512_cmpge_epu32_mask(_mm512_loadu_si512(a + i + 16), bound), odd, one);
    }
    size_t found = (size_t)_mm512_reduce_add_epi32(_mm512_add_epi32(even, odd));
    return found + at_least_plain(a, i, count, least);
}
#endif

size_t gw_at_least(const uint32_t *a, size_t count, uint32_t least) {
#if defined(__x86_64__)
    if (gw_cpu() >= GW_CPU_AVX512) return at_least_avx512(a, count, least);
    if (gw_cpu() >= GW_CPU_AVX2) return at_least_avx2(a, count, least);
#endif
    return at_least_plain(a, 0, count, least);
}

static common common_bits(const uint32_t *a, size_t count) {
#if defined(__x86_64__)
    if (gw_cpu() >= GW_CPU_AVX2) return common_avx2(a, count);
#endif
    return common_plain(a, 0, count);
}

/* The bits above the highest in which numbers differ are known. */
uint32_t gw_kth_largest(const uint32_t *a, size_t count, size_t k, int lowest_bit) {
    if (count < k) return 0;
    common c = common_bits(a, count);
    int bit = c.any == c.every ? -1 : 31 - __builtin_clz(c.any ^ c.every);
    uint32_t found = (uint32_t)((uint64_t)c.every >> (bit + 1) << (bit + 1));
    for (; bit >= lowest_bit; bit--) {
        uint32_t guess = found | UINT32_C(1) << bit;
        size_t reach = gw_at_least(a, count, guess);
        if (reach >= k) found = guess;
        if (reach == k) break;
    }
    return found >> lowest_bit << lowest_bit;
}
