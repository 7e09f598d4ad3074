/* onebit.c - one bit a value (Seide, Fu, Droppo, Li, Yu: "1-bit stochastic gradient descent", Interspeech 2014).
 *
 * In each block of 2,048 a bit tells whether a value is at or above a threshold t (0, or the mean of the block); each
 * side decodes to one value. The owner encodes the sum again, as in the paper with its own residual. Payload of a
 * block: f32 value of the lower side, f32 of the upper, then the bits, first value lowest: 264 bytes for 2,048 values,
 * 1/31 of f32.
 *
 * With d = x - t, a side decodes to t + mean(d) without feedback, which loses least. With feedback it is t + sum(d^3) /
 * sum(d^2), the mean weighted by squares. Gradients are sparse: their plain mean is far below the few large values that
 * matter. With it, these values would take many steps to leave the residual, and would do harm when they arrive. The
 * next step corrects the error that the larger step makes in small values, and the residual stays bounded: for values
 * spread evenly over [-s, s] that mean is 3/4 s (docs/explanation/accuracy.md has the accuracies).
 *
 * A NaN counts as low and makes the value of its side a NaN; an infinity makes it infinite. So they arrive, on that
 * side of the block. Finite values whose sum overflows do the same. Where cubes leave the range of f32 (a block all
 * below 1e-13, values above 1e12) the plain mean is used. */
#include "base/cpu.h"
#include "compress/codec.h"

#include <math.h>

#define BLOCK 2048u
#define LANES 8
#define HEAD (2 * sizeof(float))

enum { PARAM_THRESHOLD };
static const gw_param params[] = {
    {.name = "threshold", .about = "value that divides the two sides", .kind = GW_PARAM_CHOICE,
     .choices = GW_CHOICES("zero", "mean")},
    GW_CODEC_FEEDBACK(GW_FEEDBACK_BOTH),
    GW_CODEC_FORM,
    GW_CODEC_LIMIT,
    {.name = NULL},
};

/* Sums over the values of one side, relative to the threshold. */
typedef struct side {
    float sum[LANES], squares[LANES], cubes[LANES]; /* the lane of a value is its number modulo LANES */
    size_t count;
} side;

typedef struct sides {
    side low, high;
} sides;

static size_t bound(const gw_codec_setup *setup, const gw_codec_call *call, gw_codec_range range) {
    (void)setup, (void)call;
    return gw_blocks(range.count, BLOCK) * HEAD + (range.count + 7) / 8;
}

static void divide_plain(const float *x, size_t from, size_t count, float threshold, uint8_t *bits, sides *s) {
    for (size_t i = from; i < count; i++) {
        bool high = x[i] >= threshold;
        float above = x[i] - threshold, square = above * above;
        side *mine = high ? &s->high : &s->low;
        if (i % 8 == 0) bits[i / 8] = 0;
        bits[i / 8] |= (uint8_t)(high << i % 8);
        mine->sum[i % LANES] += above;
        mine->squares[i % LANES] += square;
        mine->cubes[i % LANES] += square * above;
        mine->count++;
    }
}

static void add_plain(const uint8_t *bits, size_t from, size_t count, float low, float high, float *sum) {
    for (size_t i = from; i < count; i++) sum[i] += bits[i / 8] >> i % 8 & 1 ? high : low;
}

#if defined(__x86_64__)
#include <immintrin.h>

#define AVX2 __attribute__((target("avx2,popcnt")))

AVX2 static size_t divide_avx2(const float *x, size_t count, float threshold, uint8_t *bits, sides *s) {
    __m256 low = _mm256_setzero_ps(), low2 = low, low3 = low, high = low, high2 = low, high3 = low;
    __m256 t = _mm256_set1_ps(threshold);
    size_t i = 0, highs = 0;
    for (; i + 8 <= count; i += 8) {
        __m256 value = _mm256_loadu_ps(x + i), is_high = _mm256_cmp_ps(value, t, _CMP_GE_OQ);
        __m256 above = _mm256_sub_ps(value, t), square = _mm256_mul_ps(above, above);
        __m256 cube = _mm256_mul_ps(square, above);
        unsigned mask = (unsigned)_mm256_movemask_ps(is_high);
        bits[i / 8] = (uint8_t)mask;
        highs += (unsigned)__builtin_popcount(mask);
        low = _mm256_add_ps(low, _mm256_andnot_ps(is_high, above));
        high = _mm256_add_ps(high, _mm256_and_ps(is_high, above));
        low2 = _mm256_add_ps(low2, _mm256_andnot_ps(is_high, square));
        high2 = _mm256_add_ps(high2, _mm256_and_ps(is_high, square));
        low3 = _mm256_add_ps(low3, _mm256_andnot_ps(is_high, cube));
        high3 = _mm256_add_ps(high3, _mm256_and_ps(is_high, cube));
    }
    _mm256_storeu_ps(s->low.sum, low);
    _mm256_storeu_ps(s->high.sum, high);
    _mm256_storeu_ps(s->low.squares, low2);
    _mm256_storeu_ps(s->high.squares, high2);
    _mm256_storeu_ps(s->low.cubes, low3);
    _mm256_storeu_ps(s->high.cubes, high3);
    s->high.count = highs;
    s->low.count = i - highs;
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

static float total(const float lane[LANES]) {
    float sum = 0;
    for (int i = 0; i < LANES; i++) sum += lane[i];
    return sum;
}

/* The decoded value of a side, relative to the threshold. */
static float value_of(const side *s, bool weighted) {
    float sum = total(s->sum), squares = total(s->squares), cubes = total(s->cubes);
    if (weighted && isnormal(squares) && isnormal(cubes)) return cubes / squares;
    return s->count ? sum / (float)s->count : 0.0f;
}

static float mean_of(const sides *s) {
    return (total(s->low.sum) + total(s->high.sum)) / (float)(s->low.count + s->high.count);
}

static size_t encode_block(const gw_codec_setup *setup, const float *x, size_t count, uint8_t *out) {
    bool weighted = gw_codec_residual(setup);
    float threshold = 0;
    sides s = {0};
    divide(x, count, threshold, out + HEAD, &s);
    if (setup->value[PARAM_THRESHOLD] != 0) {
        threshold = mean_of(&s);
        s = (sides){0};
        divide(x, count, threshold, out + HEAD, &s);
    }
    gw_put_f32(out, threshold + value_of(&s.low, weighted));
    gw_put_f32(out + sizeof(float), threshold + value_of(&s.high, weighted));
    return HEAD + (count + 7) / 8;
}

static gw_status encode(const gw_codec_setup *setup, const gw_codec_call *call, gw_codec_range range,
                        gw_codec_state *state, const float *v, void *payload, size_t capacity, size_t *bytes,
                        gw_error *error) {
    (void)call, (void)state, (void)capacity, (void)error;
    uint8_t *out = payload;
    for (uint64_t at = 0; at < range.count; at += BLOCK) {
        out += encode_block(setup, v + at, gw_block_length(range.count, at, BLOCK), out);
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
    .technique = {.name = "onebit", .about = "one bit a value, two levels per 2,048 (1-bit SGD)", .params = params},
    .encode_rate = 4e9,
    .decode_rate = 11.3e9,
    .trusted = {.error = 5, .aligned = 0.08},
    .block = BLOCK,
    .bound = bound,
    .encode = encode,
    .decode_add = decode_add,
};
