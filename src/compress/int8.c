/* int8.c - 8 bits a value, scaled by the largest magnitude of each block of 512: code = round(127 x / max), to nearest
 * even.
 *
 * Payload of a block: f32 max/127, then one signed byte a value. An error of at most max/254 a value; deterministic, so
 * biased: use feedback, or qsgd. A block with a NaN or an infinity decodes to NaN as a whole; a block whose largest
 * value is below 2^-100 decodes to zero. */
#include "base/cpu.h"
#include "compress/codec.h"

#include <math.h>

#define BLOCK 512u
#define LEVELS 127

static size_t bound(const gw_codec_setup *setup, const gw_codec_call *call, gw_codec_range range) {
    (void)setup, (void)call;
    return range.count + gw_blocks(range.count, BLOCK) * sizeof(float);
}

static void round_plain(const float *x, size_t from, size_t count, float inverse, int8_t *codes) {
    for (size_t i = from; i < count; i++) codes[i] = (int8_t)rintf(x[i] * inverse);
}

static void add_plain(const int8_t *codes, size_t from, size_t count, float unit, float *sum) {
    for (size_t i = from; i < count; i++) sum[i] += (float)codes[i] * unit;
}

#if defined(__x86_64__)
#include <immintrin.h>

#define AVX2 __attribute__((target("avx2")))

AVX2 static inline __m256i round8(const float *x, __m256 inverse) {
    return _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x), inverse));
}

/* Prefetches the next block. */
AVX2 static size_t round_avx2(const float *x, size_t count, float inverse, int8_t *codes) {
    __m256 factor = _mm256_set1_ps(inverse);
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    size_t i = 0;
    for (; i + 32 <= count; i += 32) {
        _mm_prefetch((const char *)(x + i + BLOCK), _MM_HINT_T0);
        _mm_prefetch((const char *)(x + i + BLOCK + 16), _MM_HINT_T0);
        __m256i a = _mm256_packs_epi32(round8(x + i, factor), round8(x + i + 8, factor));
        __m256i b = _mm256_packs_epi32(round8(x + i + 16, factor), round8(x + i + 24, factor));
        __m256i all = _mm256_permutevar8x32_epi32(_mm256_packs_epi16(a, b), order);
        _mm256_storeu_si256((__m256i *)(codes + i), all);
    }
    return i;
}

AVX2 static size_t add_avx2(const int8_t *codes, size_t count, float unit, float *sum) {
    __m256 factor = _mm256_set1_ps(unit);
    size_t i = 0;
    for (; i + 8 <= count; i += 8) {
        __m256i wide = _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(codes + i)));
        __m256 value = _mm256_mul_ps(_mm256_cvtepi32_ps(wide), factor);
        _mm256_storeu_ps(sum + i, _mm256_add_ps(_mm256_loadu_ps(sum + i), value));
    }
    return i;
}
#endif

static size_t encode_block(const float *x, size_t count, uint8_t *out) {
    int8_t *codes = (int8_t *)out + sizeof(float);
    uint32_t peak = gw_kernel_peak(x, count);
    float largest = gw_float_of_bits(peak);
    if (peak >= GW_INFINITY_BITS || largest < GW_QUANT_TINY) {
        gw_put_f32(out, peak >= GW_INFINITY_BITS ? NAN : 0.0f);
        memset(codes, 0, count);
        return sizeof(float) + count;
    }
    gw_put_f32(out, largest / LEVELS);
    size_t done = 0;
#if defined(__x86_64__)
    if (gw_cpu() >= GW_CPU_AVX2) done = round_avx2(x, count, LEVELS / largest, codes);
#endif
    round_plain(x, done, count, LEVELS / largest, codes);
    return sizeof(float) + count;
}

static gw_status encode(const gw_codec_setup *setup, const gw_codec_call *call, gw_codec_range range,
                        gw_codec_state *state, const float *v, void *payload, size_t capacity, size_t *bytes,
                        gw_error *error) {
    (void)setup, (void)call, (void)state, (void)capacity, (void)error;
    uint8_t *out = payload;
    for (uint64_t at = 0; at < range.count; at += BLOCK) {
        out += encode_block(v + at, gw_block_length(range.count, at, BLOCK), out);
    }
    *bytes = (size_t)(out - (uint8_t *)payload);
    return GW_OK;
}

static gw_status decode_add(const gw_codec_setup *setup, const gw_codec_call *call, gw_codec_range range,
                            const void *payload, size_t bytes, float scale, float *sum, gw_error *error) {
    size_t expected = bound(setup, call, range);
    if (bytes != expected) return gw_codec_length_error(setup->codec, range, bytes, expected, error);
    const uint8_t *in = payload;
    for (uint64_t at = 0; at < range.count; at += BLOCK) {
        size_t length = gw_block_length(range.count, at, BLOCK), done = 0;
        float unit = gw_get_f32(in) * scale;
        const int8_t *codes = (const int8_t *)in + sizeof(float);
#if defined(__x86_64__)
        if (gw_cpu() >= GW_CPU_AVX2) done = add_avx2(codes, length, unit, sum + at);
#endif
        add_plain(codes, done, length, unit, sum + at);
        in += sizeof(float) + length;
    }
    return GW_OK;
}

const gw_codec gw_codec_int8 = {
    .technique = {.name = "int8",
                  .about = "one byte a value, scaled by the largest of 512",
                  .params = GW_PARAMS(GW_CODEC_FEEDBACK(GW_FEEDBACK_NONE), GW_CODEC_FORM, GW_CODEC_LIMIT)},
    .encode_rate = 21e9,
    .decode_rate = 21e9,
    .trusted = {.error = 0.035, .aligned = 0.997},
    .block = BLOCK,
    .bound = bound,
    .encode = encode,
    .decode_add = decode_add,
};
