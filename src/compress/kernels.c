/* kernels.c - see kernels.h. */
#include "compress/kernels.h"

#include "base/cpu.h"

#define LANES GW_KERNEL_LANES
#define NORM_LANES GW_KERNEL_NORM_LANES
#define STRETCH GW_KERNEL_STRETCH
#define PREFETCH 2048 /* elements ahead: the hardware prefetcher does not keep up with two streams or more */

static float sanitised(float x) { return gw_magnitude_bits(x) < GW_INFINITY_BITS ? x : 0.0f; }

/* Plain versions: elements [from, count), the lane of an element being its number modulo the lanes. */

static void dot_plain(float lane[LANES], const float *x, const float *y, size_t from, size_t count) {
    for (size_t i = from; i < count; i++) lane[i % LANES] += x[i] * y[i];
}

static void norm2_plain(float lane[NORM_LANES], const float *x, size_t from, size_t count) {
    for (size_t i = from; i < count; i++) lane[i % NORM_LANES] += x[i] * x[i];
}

static void add_plain(float lane[NORM_LANES], float *e, const float *g, size_t from, size_t count) {
    for (size_t i = from; i < count; i++) e[i] += g[i];
    norm2_plain(lane, e, from, count);
}

static void sanitise_plain(float lane[NORM_LANES], float *e, size_t from, size_t count) {
    for (size_t i = from; i < count; i++) e[i] = sanitised(e[i]);
    norm2_plain(lane, e, from, count);
}

static void momentum_plain(float lane[NORM_LANES], float *u, float *v, const float *g, float momentum, float clip,
                           size_t from, size_t count) {
    for (size_t i = from; i < count; i++) {
        u[i] = momentum * u[i] + clip * g[i];
        v[i] += u[i];
    }
    norm2_plain(lane, v, from, count);
}

static uint32_t peak_plain(const float *x, size_t from, size_t count, uint32_t peak) {
    for (size_t i = from; i < count; i++) {
        uint32_t bits = gw_magnitude_bits(x[i]);
        if (bits > peak) peak = bits;
    }
    return peak;
}

static void axpy_plain(float *sum, const uint8_t *x, float scale, size_t from, size_t count) {
    for (size_t i = from; i < count; i++) {
        float value;
        memcpy(&value, x + i * sizeof value, sizeof value);
        sum[i] += scale * value;
    }
}

#if defined(__x86_64__)
#include <immintrin.h>

#define AVX2 __attribute__((target("avx2")))

/* Each of these handles whole groups of LANES elements and returns how many elements that was. */

AVX2 static size_t dot_avx2(float lane[LANES], const float *x, const float *y, size_t count) {
    __m256 low = _mm256_loadu_ps(lane), high = _mm256_loadu_ps(lane + 8);
    size_t i = 0;
    for (; i + LANES <= count; i += LANES) {
        low = _mm256_add_ps(low, _mm256_mul_ps(_mm256_loadu_ps(x + i), _mm256_loadu_ps(y + i)));
        high = _mm256_add_ps(high, _mm256_mul_ps(_mm256_loadu_ps(x + i + 8), _mm256_loadu_ps(y + i + 8)));
    }
    _mm256_storeu_ps(lane, low);
    _mm256_storeu_ps(lane + 8, high);
    return i;
}

AVX2 static size_t axpy_avx2(float *sum, const uint8_t *x, float scale, size_t count) {
    __m256 factor = _mm256_set1_ps(scale);
    size_t i = 0;
    for (; i + LANES <= count; i += LANES) {
        _mm_prefetch((const char *)(sum + i + PREFETCH), _MM_HINT_T0);
        _mm_prefetch((const char *)(x + 4 * (i + PREFETCH)), _MM_HINT_T0);
        __m256 a = _mm256_mul_ps(factor, _mm256_loadu_ps((const float *)(const void *)(x + 4 * i)));
        __m256 b = _mm256_mul_ps(factor, _mm256_loadu_ps((const float *)(const void *)(x + 4 * i + 32)));
        _mm256_storeu_ps(sum + i, _mm256_add_ps(_mm256_loadu_ps(sum + i), a));
        _mm256_storeu_ps(sum + i + 8, _mm256_add_ps(_mm256_loadu_ps(sum + i + 8), b));
    }
    return i;
}

AVX2 static inline __m256i magnitudes(const float *x) {
    return _mm256_and_si256(_mm256_loadu_si256((const __m256i *)x), _mm256_set1_epi32(0x7fffffff));
}

AVX2 static inline uint32_t largest(__m256i x) {
    __m128i m = _mm_max_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0x4e));
    m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0xb1));
    return (uint32_t)_mm_cvtsi128_si32(m);
}

AVX2 static size_t peak_avx2(const float *x, size_t count, uint32_t *peak) {
    __m256i a = _mm256_setzero_si256(), b = a, c = a, d = a;
    size_t i = 0;
    for (; i + 32 <= count; i += 32) {
        a = _mm256_max_epi32(a, magnitudes(x + i));
        b = _mm256_max_epi32(b, magnitudes(x + i + 8));
        c = _mm256_max_epi32(c, magnitudes(x + i + 16));
        d = _mm256_max_epi32(d, magnitudes(x + i + 24));
    }
    *peak = largest(_mm256_max_epi32(_mm256_max_epi32(a, b), _mm256_max_epi32(c, d)));
    return i;
}

AVX2 static inline __m256i peak32(const float *x) {
    return _mm256_max_epi32(_mm256_max_epi32(magnitudes(x), magnitudes(x + 8)),
                            _mm256_max_epi32(magnitudes(x + 16), magnitudes(x + 24)));
}

/* Four groups of 32 at a time: eight lanes each, folded together by a transposition. Prefetches the first half of the
 * next count elements. */
AVX2 static size_t peaks32_avx2(const float *x, size_t count, uint32_t *peaks) {
    size_t i = 0;
    for (; i + 128 <= count; i += 128) {
        for (size_t line = 0; line < 64; line += 16)
            _mm_prefetch((const char *)(x + count + i / 2 + line), _MM_HINT_T1);
        __m256i a = peak32(x + i), b = peak32(x + i + 32), c = peak32(x + i + 64), d = peak32(x + i + 96);
        __m256i ab = _mm256_max_epi32(_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
        __m256i cd = _mm256_max_epi32(_mm256_unpacklo_epi32(c, d), _mm256_unpackhi_epi32(c, d));
        __m256i all = _mm256_max_epi32(_mm256_unpacklo_epi64(ab, cd), _mm256_unpackhi_epi64(ab, cd));
        __m128i four = _mm_max_epi32(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1));
        _mm_storeu_si128((__m128i *)(peaks + i / 32), four);
    }
    return i;
}
#endif

#define PLACE(m, b) (((m) >> (b)&1) ? UINT64_C(b) << 8 * __builtin_popcount((m) & ((1u << (b)) - 1)) : 0)
#define PLACES(m)                                                                                                      \
    (PLACE(m, 0) | PLACE(m, 1) | PLACE(m, 2) | PLACE(m, 3) | PLACE(m, 4) | PLACE(m, 5) | PLACE(m, 6) | PLACE(m, 7))
#define PLACES4(m) PLACES(m), PLACES((m) + 1), PLACES((m) + 2), PLACES((m) + 3)
#define PLACES16(m) PLACES4(m), PLACES4((m) + 4), PLACES4((m) + 8), PLACES4((m) + 12)
#define PLACES64(m) PLACES16(m), PLACES16((m) + 16), PLACES16((m) + 32), PLACES16((m) + 48)

const uint64_t gw_kernel_places[256] = {PLACES64(0u), PLACES64(64u), PLACES64(128u), PLACES64(192u)};

static bool fast(void) {
#if defined(__x86_64__)
    return gw_cpu() >= GW_CPU_AVX2;
#else
    return false;
#endif
}

#if defined(__x86_64__)
#define FAST(done, call)                                                                                               \
    if (fast()) done = call
#define FASTEST(done, call)                                                                                            \
    if (fast()) done = (gw_cpu() >= GW_CPU_AVX512 ? gw_kernels_avx512 : gw_kernels_avx2).call
#else
#define FAST(done, call) (void)fast
#define FASTEST(done, call) (void)fast
#endif

/* One stretch after the other, so that each f32 sum is short. */
#define STRETCHES(count, sum, lanes, fast_call, plain_call)                                                            \
    double sum = 0;                                                                                                    \
    for (size_t at = 0; at < count; at += STRETCH) {                                                                   \
        size_t length = count - at < STRETCH ? count - at : STRETCH, done = 0;                                         \
        float lane[lanes] = {0};                                                                                       \
        fast_call;                                                                                                     \
        plain_call;                                                                                                    \
        sum += gw_lanes_sum(lane, lanes);                                                                              \
    }

double gw_kernel_dot(const float *x, const float *y, size_t count) {
    STRETCHES(count, sum, LANES, FAST(done, dot_avx2(lane, x + at, y + at, length)),
              dot_plain(lane, x + at, y + at, done, length))
    return sum;
}

double gw_kernel_norm2(const float *x, size_t count) {
    STRETCHES(count, sum, NORM_LANES, FASTEST(done, norm2(lane, x + at, length)),
              norm2_plain(lane, x + at, done, length))
    return sum;
}

double gw_kernel_add(float *e, const float *g, size_t count) {
    STRETCHES(count, sum, NORM_LANES, FASTEST(done, add(lane, e + at, g + at, length)),
              add_plain(lane, e + at, g + at, done, length))
    return sum;
}

static void add_move_plain(float lane[NORM_LANES], float *e, const float *g, size_t from, size_t count, size_t first,
                           gw_kernel_list *list) {
    add_plain(lane, e, g, from, count);
    for (size_t i = from; i < count; i++) {
        if (gw_magnitude_bits(e[i]) < list->least) continue;
        list->index[list->count] = (uint16_t)(first + i);
        list->value[list->count++] = e[i];
        e[i] = 0;
    }
}

/* A stretch finds at most as many as there are spare entries. */
double gw_kernel_add_move(float *e, const float *g, size_t count, gw_kernel_list *list) {
    list->count = 0;
    STRETCHES(count, sum, NORM_LANES, if (list->count > GW_KERNEL_LIST) list->least = GW_KERNEL_NOTHING;
              FASTEST(done, add_move(lane, e + at, g + at, length, at, list)),
              add_move_plain(lane, e + at, g + at, done, length, at, list))
    return sum;
}

void gw_kernel_scale(float *e, float factor, size_t count) {
    for (size_t i = 0; i < count; i++) e[i] *= factor;
}

double gw_kernel_sanitise(float *e, size_t count) {
    STRETCHES(count, sum, NORM_LANES, FASTEST(done, sanitise(lane, e + at, length)),
              sanitise_plain(lane, e + at, done, length))
    return sum;
}

double gw_kernel_momentum(float *u, float *v, const float *g, float momentum, float clip, size_t count) {
    STRETCHES(count, sum, NORM_LANES, FASTEST(done, momentum(lane, u + at, v + at, g + at, momentum, clip, length)),
              momentum_plain(lane, u + at, v + at, g + at, momentum, clip, done, length))
    return sum;
}

uint32_t gw_kernel_peak(const float *x, size_t count) {
    uint32_t peak = 0;
    size_t done = 0;
    FAST(done, peak_avx2(x, count, &peak));
    return peak_plain(x, done, count, peak);
}

void gw_kernel_peaks32(const float *x, size_t count, uint32_t *peaks) {
    size_t done = 0;
    FAST(done, peaks32_avx2(x, count, peaks));
    for (; done < count; done += 32) peaks[done / 32] = peak_plain(x, done, count - done < 32 ? count : done + 32, 0);
}

void gw_kernel_axpy(float *sum, const void *x, float scale, size_t count) {
    size_t done = 0;
    FAST(done, axpy_avx2(sum, x, scale, count));
    axpy_plain(sum, x, scale, done, count);
}
