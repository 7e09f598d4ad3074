/* onebit.c - one bit a value (Seide, Fu, Droppo, Li, Yu: "1-bit stochastic gradient descent", Interspeech 2014).
 *
 * In each block of 2,048 a bit says whether a value is at or above a threshold (0, or the block's mean); each side
 * decodes to its mean. Needs feedback, as in the paper, which also has the owner encode the sum again with a
 * residual of its own (feedback=both, or doublesqueeze). Payload of a block: f32 mean of the lower side, f32 mean of
 * the upper, then the bits, first value lowest: 264 bytes for 2,048 values, 1/31 of f32.
 *
 * A NaN counts as low, and makes the mean of its side a NaN; an infinity makes it infinite: so they arrive, on that
 * side of the block. Finite values whose sum overflows do the same. */
#include "base/cpu.h"
#include "compress/codec.h"

#define BLOCK 2048u
#define LANES 8
#define HEAD (2 * sizeof(float))

enum { PARAM_THRESHOLD };
static const gw_param params[] = {
    {.name = "threshold", .about = "what divides the two sides", .kind = GW_PARAM_CHOICE,
     .choices = GW_CHOICES("zero", "mean")},
    GW_CODEC_FEEDBACK(GW_FEEDBACK_WORKER), /* an owner's residual doubles the lag: docs/compression.md */
    GW_CODEC_LIMIT,
    {.name = NULL},
};

/* Both sides, summed in lanes: the lane of a value is its number modulo LANES. */
typedef struct sides {
    float low[LANES], high[LANES];
    size_t highs;
} sides;

static size_t bound(const gw_codec_setup *setup, const gw_codec_call *call, gw_codec_range range) {
    (void)setup, (void)call;
    return gw_blocks(range.count, BLOCK) * HEAD + (range.count + 7) / 8;
}

static void divide_plain(const float *x, size_t from, size_t count, float threshold, uint8_t *bits, sides *s) {
    for (size_t i = from; i < count; i++) {
        bool high = x[i] >= threshold;
        if (i % 8 == 0) bits[i / 8] = 0;
        bits[i / 8] |= (uint8_t)(high << i % 8);
        s->highs += high;
        s->low[i % LANES] += high ? 0.0f : x[i];
        s->high[i % LANES] += high ? x[i] : 0.0f;
    }
}

static void add_plain(const uint8_t *bits, size_t from, size_t count, float low, float high, float *sum) {
    for (size_t i = from; i < count; i++) sum[i] += bits[i / 8] >> i % 8 & 1 ? high : low;
}

#if defined(__x86_64__)
#include <immintrin.h>

#define AVX2 __attribute__((target("avx2,popcnt")))

AVX2 static size_t divide_avx2(const float *x, size_t count, float threshold, uint8_t *bits, sides *s) {
    __m256 low = _mm256_setzero_ps(), high = low, t = _mm256_set1_ps(threshold);
    size_t i = 0, highs = 0;
    for (; i + 8 <= count; i += 8) {
        __m256 value = _mm256_loadu_ps(x + i), is_high = _mm256_cmp_ps(value, t, _CMP_GE_OQ);
        unsigned mask = (unsigned)_mm256_movemask_ps(is_high);
        bits[i / 8] = (uint8_t)mask;
        highs += (unsigned)__builtin_popcount(mask);
        low = _mm256_add_ps(low, _mm256_andnot_ps(is_high, value));
        high = _mm256_add_ps(high, _mm256_and_ps(is_high, value));
    }
    _mm256_storeu_ps(s->low, low);
    _mm256_storeu_ps(s->high, high);
    s->highs = highs;
    return i;
}

AVX2 static size_t add_avx2(const uint8_t *bits, size_t count, float low, float high, float *sum) {
    const __m256i which = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    __m256 below = _mm256_set1_ps(low), above = _mm256_set1_ps(high);
    size_t i = 0;
    for (; i + 8 <= count; i += 8) {
        __m256i mine = _mm256_and_si256(_mm256_set1_epi32(bits[i / 8]), which);
        __m256 value = _mm256_blendv_ps(below, above, _mm256_castsi256_ps(_mm256_cmpeq_epi32(mine, which)));
        _mm256_storeu_ps(sum + i, _mm256_add_ps(_mm256_loadu_ps(sum + i), value));
    }
    return i;
}
#endif

static void divide(const float *x, size_t count, float threshold, uint8_t *bits, sides *s) {
    size_t done = 0;
#if defined(__x86_64__)
    if (gw_cpu() >= GW_CPU_AVX2) done = divide_avx2(x, count, threshold, bits, s);
#endif
    divide_plain(x, done, count, threshold, bits, s);
}

static float lanes_mean(const float lane[LANES], size_t count) {
    float sum = 0;
    for (int i = 0; i < LANES; i++) sum += lane[i];
    return count ? sum / (float)count : 0.0f;
}

static size_t encode_block(const float *x, size_t count, bool about_mean, uint8_t *out) {
    sides s = {0};
    divide(x, count, 0.0f, out + HEAD, &s);
    if (about_mean) {
        for (int i = 0; i < LANES; i++) s.low[i] += s.high[i];
        float mean = lanes_mean(s.low, count);
        s = (sides){0};
        divide(x, count, mean, out + HEAD, &s);
    }
    gw_put_f32(out, lanes_mean(s.low, count - s.highs));
    gw_put_f32(out + sizeof(float), lanes_mean(s.high, s.highs));
    return HEAD + (count + 7) / 8;
}

static gw_status encode(const gw_codec_setup *setup, const gw_codec_call *call, gw_codec_range range,
                        gw_codec_state *state, const float *v, void *payload, size_t capacity, size_t *bytes,
                        gw_error *error) {
    (void)call, (void)state, (void)capacity, (void)error;
    bool about_mean = setup->value[PARAM_THRESHOLD] != 0;
    uint8_t *out = payload;
    for (uint64_t at = 0; at < range.count; at += BLOCK) {
        out += encode_block(v + at, gw_block_length(range.count, at, BLOCK), about_mean, out);
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
        float low = scale * gw_get_f32(in), high = scale * gw_get_f32(in + sizeof(float));
#if defined(__x86_64__)
        if (gw_cpu() >= GW_CPU_AVX2) done = add_avx2(in + HEAD, length, low, high, sum + at);
#endif
        add_plain(in + HEAD, done, length, low, high, sum + at);
        in += HEAD + (length + 7) / 8;
    }
    return GW_OK;
}

const gw_codec gw_codec_onebit = {
    .technique = {.name = "onebit", .about = "one bit a value and two means per 2,048 (1-bit SGD)", .params = params},
    .block = BLOCK,
    .bound = bound,
    .encode = encode,
    .decode_add = decode_add,
};
