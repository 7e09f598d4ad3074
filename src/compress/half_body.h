/* half_body.h - the common part of fp16.c and bf16.c: a payload has one u16 per value. The including file sets TO_F32,
 * TO_F32_ARRAY and FROM_F32_ARRAY (base/half.h), and on x86-64 also HALF_AVX2 (the target attribute) and widen8, which
 * widens 8 values to 8 floats.
 *
 * Reduced in flight: each merge widens, adds in f32 and rounds again. */
#include "base/cpu.h"
#include "compress/codec.h"

#define PREFETCH 512 /* elements ahead */

static size_t bound(const gw_codec_setup *setup, const gw_codec_call *call, gw_codec_range range) {
    (void)setup, (void)call;
    return range.count * sizeof(uint16_t);
}

static gw_status encode(const gw_codec_setup *setup, const gw_codec_call *call, gw_codec_range range,
                        gw_codec_state *state, const float *v, void *payload, size_t capacity, size_t *bytes,
                        gw_error *error) {
    (void)state, (void)capacity, (void)error;
    *bytes = bound(setup, call, range);
    FROM_F32_ARRAY(payload, v, range.count);
    return GW_OK;
}

#if defined(__x86_64__)
HALF_AVX2 static size_t add_avx2(float *sum, const uint16_t *x, float scale, size_t count) {
    __m256 factor = _mm256_set1_ps(scale);
    size_t i = 0;
    for (; i + 16 <= count; i += 16) {
        _mm_prefetch((const char *)(sum + i + PREFETCH), _MM_HINT_T0);
        __m256 a = _mm256_mul_ps(factor, widen8(x + i)), b = _mm256_mul_ps(factor, widen8(x + i + 8));
        _mm256_storeu_ps(sum + i, _mm256_add_ps(_mm256_loadu_ps(sum + i), a));
        _mm256_storeu_ps(sum + i + 8, _mm256_add_ps(_mm256_loadu_ps(sum + i + 8), b));
    }
    return i;
}
#endif

static gw_status decode_add(const gw_codec_setup *setup, const gw_codec_call *call, gw_codec_range range,
                            const void *payload, size_t bytes, float scale, float *sum, gw_error *error) {
    size_t expected = bound(setup, call, range), done = 0;
    if (bytes != expected) return gw_codec_length_error(setup->codec, range, bytes, expected, error);
    const uint16_t *x = payload;
#if defined(__x86_64__)
    if (gw_cpu() >= GW_CPU_AVX2) done = add_avx2(sum, x, scale, range.count);
#endif
    for (; done < range.count; done++) sum[done] += scale * TO_F32(x[done]);
    return GW_OK;
}

static void merge(const gw_codec_setup *setup, const gw_codec_call *call, void *into, const void *from, size_t bytes) {
    (void)setup, (void)call;
    enum { STRETCH = 1024 };
    uint16_t *to = into;
    const uint16_t *x = from;
    float a[STRETCH], b[STRETCH];
    for (size_t at = 0, count = bytes / sizeof *to; at < count; at += STRETCH) {
        size_t length = gw_block_length(count, at, STRETCH);
        TO_F32_ARRAY(a, to + at, length);
        TO_F32_ARRAY(b, x + at, length);
        gw_kernel_axpy(a, b, 1.0f, length);
        FROM_F32_ARRAY(to + at, a, length);
    }
}
