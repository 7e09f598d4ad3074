/* kernels_avx2.c - passes of kernels.h that also sum squares, for CPUs with AVX2. */
#include "compress/kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define AVX2 __attribute__((target("avx2")))
#define INLINE AVX2 static inline __attribute__((always_inline))
#define GROUP GW_KERNEL_NORM_LANES
#define AHEAD 2048 /* elements: the hardware prefetcher does not keep up with two streams or more */

/* Sums of squares of every 32nd element. */
typedef struct lanes32 {
    __m256 a, b, c, d;
} lanes32;

INLINE lanes32 lanes_load(const float *lane) {
    return (lanes32){_mm256_loadu_ps(lane), _mm256_loadu_ps(lane + 8), _mm256_loadu_ps(lane + 16),
                     _mm256_loadu_ps(lane + 24)};
}

INLINE void lanes_store(lanes32 sums, float *lane) {
    _mm256_storeu_ps(lane, sums.a);
    _mm256_storeu_ps(lane + 8, sums.b);
    _mm256_storeu_ps(lane + 16, sums.c);
    _mm256_storeu_ps(lane + 24, sums.d);
}

INLINE void lanes_add(lanes32 *sums, __m256 a, __m256 b, __m256 c, __m256 d) {
    sums->a = _mm256_add_ps(sums->a, _mm256_mul_ps(a, a));
    sums->b = _mm256_add_ps(sums->b, _mm256_mul_ps(b, b));
    sums->c = _mm256_add_ps(sums->c, _mm256_mul_ps(c, c));
    sums->d = _mm256_add_ps(sums->d, _mm256_mul_ps(d, d));
}

INLINE void fetch32(const float *x) {
    _mm_prefetch((const char *)x, _MM_HINT_T0);
    _mm_prefetch((const char *)(x + 16), _MM_HINT_T0);
}

AVX2 size_t gw_kernel_norm2_avx2(float *lane, const float *x, size_t count) {
    lanes32 sums = lanes_load(lane);
    size_t i = 0;
    for (; i + GROUP <= count; i += GROUP) {
        lanes_add(&sums, _mm256_loadu_ps(x + i), _mm256_loadu_ps(x + i + 8), _mm256_loadu_ps(x + i + 16),
                  _mm256_loadu_ps(x + i + 24));
    }
    lanes_store(sums, lane);
    return i;
}

INLINE __m256 added8(float *e, const float *g) {
    __m256 sum = _mm256_add_ps(_mm256_loadu_ps(e), _mm256_loadu_ps(g));
    _mm256_storeu_ps(e, sum);
    return sum;
}

INLINE __m256i magnitudes(__m256 x) { return _mm256_and_si256(_mm256_castps_si256(x), _mm256_set1_epi32(0x7fffffff)); }

/* e += g for a group; returns the peaks of its eight columns. */
INLINE __m256i add32(lanes32 *sums, float *e, const float *g, bool peaks) {
    fetch32(g + AHEAD);
    fetch32(e + AHEAD);
    __m256 a = added8(e, g), b = added8(e + 8, g + 8), c = added8(e + 16, g + 16), d = added8(e + 24, g + 24);
    lanes_add(sums, a, b, c, d);
    if (!peaks) return _mm256_setzero_si256();
    return _mm256_max_epi32(_mm256_max_epi32(magnitudes(a), magnitudes(b)),
                            _mm256_max_epi32(magnitudes(c), magnitudes(d)));
}

AVX2 size_t gw_kernel_add_avx2(float *lane, float *e, const float *g, size_t count) {
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

AVX2 size_t gw_kernel_add_peaks32_avx2(float *lane, float *e, const float *g, size_t count, uint32_t *peaks) {
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

INLINE __m256 sanitised8(float *e) {
    __m256 x = _mm256_loadu_ps(e);
    __m256i finite = _mm256_cmpgt_epi32(_mm256_set1_epi32((int)GW_INFINITY_BITS), magnitudes(x));
    x = _mm256_and_ps(x, _mm256_castsi256_ps(finite));
    _mm256_storeu_ps(e, x);
    return x;
}

AVX2 size_t gw_kernel_sanitise_avx2(float *lane, float *e, size_t count) {
    lanes32 sums = lanes_load(lane);
    size_t i = 0;
    for (; i + GROUP <= count; i += GROUP)
        lanes_add(&sums, sanitised8(e + i), sanitised8(e + i + 8), sanitised8(e + i + 16), sanitised8(e + i + 24));
    lanes_store(sums, lane);
    return i;
}

INLINE __m256 momentum8(float *u, float *v, const float *g, __m256 momentum, __m256 clip) {
    __m256 sum = _mm256_add_ps(_mm256_mul_ps(momentum, _mm256_loadu_ps(u)), _mm256_mul_ps(clip, _mm256_loadu_ps(g)));
    __m256 all = _mm256_add_ps(_mm256_loadu_ps(v), sum);
    _mm256_storeu_ps(u, sum);
    _mm256_storeu_ps(v, all);
    return all;
}

AVX2 size_t gw_kernel_momentum_avx2(float *lane, float *u, float *v, const float *g, float momentum, float clip,
                                    size_t count) {
    lanes32 sums = lanes_load(lane);
    __m256 m = _mm256_set1_ps(momentum), c = _mm256_set1_ps(clip);
    size_t i = 0;
    for (; i + GROUP <= count; i += GROUP) {
        fetch32(g + i + AHEAD);
        fetch32(u + i + AHEAD);
        fetch32(v + i + AHEAD);
        lanes_add(&sums, momentum8(u + i, v + i, g + i, m, c), momentum8(u + i + 8, v + i + 8, g + i + 8, m, c),
                  momentum8(u + i + 16, v + i + 16, g + i + 16, m, c),
                  momentum8(u + i + 24, v + i + 24, g + i + 24, m, c));
    }
    lanes_store(sums, lane);
    return i;
}
#endif
