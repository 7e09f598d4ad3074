/* kernels_avx512.c - passes of kernels.h that also sum squares, for CPUs with AVX-512. */
#include "compress/kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))
#define INLINE AVX512 static inline __attribute__((always_inline))
#define GROUP GW_KERNEL_NORM_LANES
#define AHEAD 2048 /* elements: the hardware prefetcher does not keep up with two streams or more */

/* Sums of squares of every 32nd element. */
typedef struct lanes32 {
    __m512 a, b;
} lanes32;

INLINE lanes32 lanes_load(const float *lane) { return (lanes32){_mm512_loadu_ps(lane), _mm512_loadu_ps(lane + 16)}; }

INLINE void lanes_store(lanes32 sums, float *lane) {
    _mm512_storeu_ps(lane, sums.a);
    _mm512_storeu_ps(lane + 16, sums.b);
}

INLINE void lanes_add(lanes32 *sums, __m512 a, __m512 b) {
    sums->a = _mm512_add_ps(sums->a, _mm512_mul_ps(a, a));
    sums->b = _mm512_add_ps(sums->b, _mm512_mul_ps(b, b));
}

INLINE void fetch32(const float *x) {
    _mm_prefetch((const char *)x, _MM_HINT_T0);
    _mm_prefetch((const char *)(x + 16), _MM_HINT_T0);
}

INLINE __m512 added16(float *e, const float *g) {
    __m512 sum = _mm512_add_ps(_mm512_loadu_ps(e), _mm512_loadu_ps(g));
    _mm512_storeu_ps(e, sum);
    return sum;
}

INLINE __m512i magnitudes(__m512 x) { return _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(0x7fffffff)); }

/* e += g for a group; returns the peaks of eight columns. */
INLINE __m256i add32(lanes32 *sums, float *e, const float *g, bool peaks) {
    fetch32(g + AHEAD);
    fetch32(e + AHEAD);
    __m512 a = added16(e, g), b = added16(e + 16, g + 16);
    lanes_add(sums, a, b);
    if (!peaks) return _mm256_setzero_si256();
    __m512i both = _mm512_max_epi32(magnitudes(a), magnitudes(b));
    return _mm256_max_epi32(_mm512_castsi512_si256(both), _mm512_extracti64x4_epi64(both, 1));
}

AVX512 size_t gw_kernel_add_avx512(float *lane, float *e, const float *g, size_t count) {
    lanes32 sums = lanes_load(lane);
    size_t i = 0;
    for (; i + GROUP <= count; i += GROUP) add32(&sums, e + i, g + i, false);
    lanes_store(sums, lane);
    return i;
}

/* The largest of each of four groups, folded together by a transposition. */
INLINE __m128i four_peaks(__m256i a, __m256i b, __m256i c, __m256i d) {
    __m256i ab = _mm256_max_epi32(_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
    __m256i cd = _mm256_max_epi32(_mm256_unpacklo_epi32(c, d), _mm256_unpackhi_epi32(c, d));
    __m256i all = _mm256_max_epi32(_mm256_unpacklo_epi64(ab, cd), _mm256_unpackhi_epi64(ab, cd));
    return _mm_max_epi32(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1));
}

AVX512 size_t gw_kernel_add_peaks32_avx512(float *lane, float *e, const float *g, size_t count, uint32_t *peaks) {
    lanes32 sums = lanes_load(lane);
    size_t i = 0;
    for (; i + 4 * GROUP <= count; i += 4 * GROUP) {
        __m256i a = add32(&sums, e + i, g + i, true), b = add32(&sums, e + i + 32, g + i + 32, true);
        __m256i c = add32(&sums, e + i + 64, g + i + 64, true), d = add32(&sums, e + i + 96, g + i + 96, true);
        _mm_storeu_si128((__m128i *)(peaks + i / 32), four_peaks(a, b, c, d));
    }
    lanes_store(sums, lane);
    return i;
}

INLINE __m512 sanitised16(float *e) {
    __m512 x = _mm512_loadu_ps(e);
    __mmask16 finite = _mm512_cmplt_epu32_mask(magnitudes(x), _mm512_set1_epi32((int)GW_INFINITY_BITS));
    x = _mm512_maskz_mov_ps(finite, x);
    _mm512_storeu_ps(e, x);
    return x;
}

AVX512 size_t gw_kernel_sanitise_avx512(float *lane, float *e, size_t count) {
    lanes32 sums = lanes_load(lane);
    size_t i = 0;
    for (; i + GROUP <= count; i += GROUP) lanes_add(&sums, sanitised16(e + i), sanitised16(e + i + 16));
    lanes_store(sums, lane);
    return i;
}
#endif
