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
#define LANES 16
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

/* What a block is made of: x, or with feedback e += gradient first. */
typedef struct values {
    const float *x, *gradient;
    float *e; /* the same as x; NULL: x stays as it is */
} values;

static void divide_plain(values v, size_t from, size_t count, float threshold, uint8_t *bits, sides *s) {
    for (size_t i = from; i < count; i++) {
        if (v.e) v.e[i] += v.gradient[i];
        bool high = v.x[i] >= threshold;
        float above = v.x[i] - threshold, square = above * above;
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
#define AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,popcnt")))
#define INLINE2 AVX2 static inline __attribute__((always_inline))
#define INLINE512 AVX512 static inline __attribute__((always_inline))

/* Prefetches the block after this one, where the caller goes on: half of what it needs here, half in add. */
#define FETCH(x) _mm_prefetch((const char *)((x) + BLOCK), _MM_HINT_T0)

/* Sums over every eighth value. */
typedef struct sides8 {
    __m256 low, low2, low3, high, high2, high3;
} sides8;

INLINE2 unsigned divide8(sides8 *s, __m256 value, __m256 t) {
    __m256 is_high = _mm256_cmp_ps(value, t, _CMP_GE_OQ), above = _mm256_sub_ps(value, t);
    __m256 high = _mm256_and_ps(is_high, above), low = _mm256_andnot_ps(is_high, above);
    __m256 high2 = _mm256_mul_ps(high, high), low2 = _mm256_mul_ps(low, low);
    s->low = _mm256_add_ps(s->low, low);
    s->high = _mm256_add_ps(s->high, high);
    s->low2 = _mm256_add_ps(s->low2, low2);
    s->high2 = _mm256_add_ps(s->high2, high2);
    s->low3 = _mm256_add_ps(s->low3, _mm256_mul_ps(low2, low));
    s->high3 = _mm256_add_ps(s->high3, _mm256_mul_ps(high2, high));
    return (unsigned)_mm256_movemask_ps(is_high);
}

AVX2 static void keep8(const sides8 *from, size_t lane, sides *s) {
    _mm256_storeu_ps(s->low.sum + lane, from->low);
    _mm256_storeu_ps(s->high.sum + lane, from->high);
    _mm256_storeu_ps(s->low.squares + lane, from->low2);
    _mm256_storeu_ps(s->high.squares + lane, from->high2);
    _mm256_storeu_ps(s->low.cubes + lane, from->low3);
    _mm256_storeu_ps(s->high.cubes + lane, from->high3);
}

INLINE2 __m256 value8(values v, size_t i) {
    __m256 value = _mm256_loadu_ps(v.x + i);
    if (!v.e) return value;
    value = _mm256_add_ps(value, _mm256_loadu_ps(v.gradient + i));
    _mm256_storeu_ps(v.e + i, value);
    return value;
}

AVX2 static size_t divide_avx2(values v, size_t count, float threshold, uint8_t *bits, sides *s) {
    const __m256 zero = _mm256_setzero_ps(), t = _mm256_set1_ps(threshold);
    const float *next = v.e ? v.gradient : v.x;
    sides8 a = {zero, zero, zero, zero, zero, zero}, b = a;
    size_t i = 0, highs = 0;
    for (; i + 16 <= count; i += 16) {
        FETCH(next + i);
        unsigned low = divide8(&a, value8(v, i), t), mask = divide8(&b, value8(v, i + 8), t) << 8 | low;
        memcpy(bits + i / 8, &mask, 2);
        highs += (unsigned)__builtin_popcount(mask);
    }
    keep8(&a, 0, s);
    keep8(&b, 8, s);
    s->high.count = highs;
    s->low.count = i - highs;
    return i;
}

INLINE512 __m512 value16(values v, size_t i) {
    __m512 value = _mm512_loadu_ps(v.x + i);
    if (!v.e) return value;
    value = _mm512_add_ps(value, _mm512_loadu_ps(v.gradient + i));
    _mm512_storeu_ps(v.e + i, value);
    return value;
}

AVX512 static size_t divide_avx512(values v, size_t count, float threshold, uint8_t *bits, sides *s) {
    const __m512 zero = _mm512_setzero_ps(), t = _mm512_set1_ps(threshold);
    const float *next = v.e ? v.gradient : v.x;
    __m512 low = zero, low2 = zero, low3 = zero, high = zero, high2 = zero, high3 = zero;
    size_t i = 0, highs = 0;
    for (; i + 16 <= count; i += 16) {
        FETCH(next + i);
        __m512 value = value16(v, i), above = _mm512_sub_ps(value, t);
        __m512 square = _mm512_mul_ps(above, above), cube = _mm512_mul_ps(square, above);
        __mmask16 is_high = _mm512_cmp_ps_mask(value, t, _CMP_GE_OQ), is_low = _knot_mask16(is_high);
        low = _mm512_mask_add_ps(low, is_low, low, above);
        high = _mm512_mask_add_ps(high, is_high, high, above);
        low2 = _mm512_mask_add_ps(low2, is_low, low2, square);
        high2 = _mm512_mask_add_ps(high2, is_high, high2, square);
        low3 = _mm512_mask_add_ps(low3, is_low, low3, cube);
        high3 = _mm512_mask_add_ps(high3, is_high, high3, cube);
        unsigned mask = _cvtmask16_u32(is_high);
        memcpy(bits + i / 8, &mask, 2);
        highs += (unsigned)__builtin_popcount(mask);
    }
    _mm512_storeu_ps(s->low.sum, low);
    _mm512_storeu_ps(s->high.sum, high);
    _mm512_storeu_ps(s->low.squares, low2);
    _mm512_storeu_ps(s->high.squares, high2);
    _mm512_storeu_ps(s->low.cubes, low3);
    _mm512_storeu_ps(s->high.cubes, high3);
    s->high.count = highs;
    s->low.count = i - highs;
    return i;
}

/* x + the value of its side; the bits of the sides begin at the lowest of `bits`. */
INLINE2 __m256 added8(const float *x, uint32_t bits, __m256 low, __m256 high) {
    __m256i sign = _mm256_sllv_epi32(_mm256_set1_epi32((int)bits), _mm256_setr_epi32(31, 30, 29, 28, 27, 26, 25, 24));
    return _mm256_add_ps(_mm256_loadu_ps(x), _mm256_blendv_ps(low, high, _mm256_castsi256_ps(sign)));
}

INLINE512 __m512 added16(const float *x, uint16_t bits, __m512 low, __m512 high) {
    return _mm512_add_ps(_mm512_loadu_ps(x), _mm512_mask_blend_ps(_cvtu32_mask16(bits), low, high));
}

AVX2 static size_t add_avx2(const uint8_t *bits, size_t count, float low, float high, float *sum) {
    const __m256 below = _mm256_set1_ps(low), above = _mm256_set1_ps(high);
    size_t i = 0;
    for (; i + 8 <= count; i += 8) _mm256_storeu_ps(sum + i, added8(sum + i, bits[i / 8], below, above));
    return i;
}

AVX512 static size_t add_avx512(const uint8_t *bits, size_t count, float low, float high, float *sum) {
    const __m512 below = _mm512_set1_ps(low), above = _mm512_set1_ps(high);
    size_t i = 0;
    for (; i + 16 <= count; i += 16) {
        uint16_t mask;
        memcpy(&mask, bits + i / 8, sizeof mask);
        _mm512_storeu_ps(sum + i, added16(sum + i, mask, below, above));
    }
    return i;
}

/* The functions that take off also sanitise, and sum squares as gw_kernel_sanitise does. */

INLINE2 __m256 taken8(float *e, uint32_t bits, __m256 low, __m256 high, __m256 squares) {
    __m256 x = added8(e, bits, low, high);
    __m256i magnitude = _mm256_and_si256(_mm256_castps_si256(x), _mm256_set1_epi32(0x7fffffff));
    __m256i finite = _mm256_cmpgt_epi32(_mm256_set1_epi32((int)GW_INFINITY_BITS), magnitude);
    x = _mm256_and_ps(x, _mm256_castsi256_ps(finite));
    _mm256_storeu_ps(e, x);
    return _mm256_add_ps(squares, _mm256_mul_ps(x, x));
}

AVX2 static size_t take_off_avx2(const uint8_t *bits, size_t count, float low, float high, float *e, float *lane) {
    const __m256 below = _mm256_set1_ps(low), above = _mm256_set1_ps(high);
    __m256 a = _mm256_setzero_ps(), b = a, c = a, d = a;
    size_t i = 0;
    for (; i + 32 <= count; i += 32) {
        FETCH(e + i);
        FETCH(e + i + 16);
        a = taken8(e + i, bits[i / 8], below, above, a);
        b = taken8(e + i + 8, bits[i / 8 + 1], below, above, b);
        c = taken8(e + i + 16, bits[i / 8 + 2], below, above, c);
        d = taken8(e + i + 24, bits[i / 8 + 3], below, above, d);
    }
    _mm256_storeu_ps(lane, a);
    _mm256_storeu_ps(lane + 8, b);
    _mm256_storeu_ps(lane + 16, c);
    _mm256_storeu_ps(lane + 24, d);
    return i;
}

INLINE512 __m512 taken16(float *e, uint16_t bits, __m512 low, __m512 high, __m512 squares) {
    __m512 x = added16(e, bits, low, high);
    __m512i magnitude = _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(0x7fffffff));
    x = _mm512_maskz_mov_ps(_mm512_cmplt_epu32_mask(magnitude, _mm512_set1_epi32((int)GW_INFINITY_BITS)), x);
    _mm512_storeu_ps(e, x);
    return _mm512_add_ps(squares, _mm512_mul_ps(x, x));
}

AVX512 static size_t take_off_avx512(const uint8_t *bits, size_t count, float low, float high, float *e, float *lane) {
    const __m512 below = _mm512_set1_ps(low), above = _mm512_set1_ps(high);
    __m512 a = _mm512_setzero_ps(), b = a;
    size_t i = 0;
    for (; i + 32 <= count; i += 32) {
        uint16_t mask[2];
        memcpy(mask, bits + i / 8, sizeof mask);
        FETCH(e + i);
        FETCH(e + i + 16);
        a = taken16(e + i, mask[0], below, above, a);
        b = taken16(e + i + 16, mask[1], below, above, b);
    }
    _mm512_storeu_ps(lane, a);
    _mm512_storeu_ps(lane + 16, b);
    return i;
}
#endif

static void divide(values v, size_t count, float threshold, uint8_t *bits, sides *s) {
    size_t done = 0;
#if defined(__x86_64__)
    if (gw_cpu() >= GW_CPU_AVX512) done = divide_avx512(v, count, threshold, bits, s);
    else if (gw_cpu() >= GW_CPU_AVX2) done = divide_avx2(v, count, threshold, bits, s);
#endif
    divide_plain(v, done, count, threshold, bits, s);
}

static void add(const uint8_t *bits, size_t count, float low, float high, float *sum) {
    size_t done = 0;
#if defined(__x86_64__)
    if (gw_cpu() >= GW_CPU_AVX512) done = add_avx512(bits, count, low, high, sum);
    else if (gw_cpu() >= GW_CPU_AVX2) done = add_avx2(bits, count, low, high, sum);
#endif
    add_plain(bits, done, count, low, high, sum);
}

/* e -= what was sent, of a block; returns its sum of squares. */
static double take_off_block(const uint8_t *bits, size_t count, float low, float high, float *e) {
    float lane[GW_KERNEL_NORM_LANES] = {0};
    size_t done = 0;
#if defined(__x86_64__)
    if (gw_cpu() >= GW_CPU_AVX512) done = take_off_avx512(bits, count, -low, -high, e, lane);
    else if (gw_cpu() >= GW_CPU_AVX2) done = take_off_avx2(bits, count, -low, -high, e, lane);
#endif
    add_plain(bits, done, count, -low, -high, e);
    for (size_t i = done; i < count; i++) {
        if (gw_magnitude_bits(e[i]) >= GW_INFINITY_BITS) e[i] = 0;
        lane[i % GW_KERNEL_NORM_LANES] += e[i] * e[i];
    }
    return gw_lanes_sum(lane, GW_KERNEL_NORM_LANES);
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

static size_t encode_block(const gw_codec_setup *setup, values v, size_t count, uint8_t *out, double *norm2) {
    bool weighted = gw_codec_residual(setup);
    float threshold = 0;
    sides s = {0};
    divide(v, count, threshold, out + HEAD, &s);
    *norm2 += (double)total(s.low.squares) + (double)total(s.high.squares);
    if (setup->value[PARAM_THRESHOLD] != 0) {
        threshold = mean_of(&s);
        s = (sides){0};
        divide((values){.x = v.x}, count, threshold, out + HEAD, &s);
    }
    gw_put_f32(out, threshold + value_of(&s.low, weighted));
    gw_put_f32(out + sizeof(float), threshold + value_of(&s.high, weighted));
    return HEAD + (count + 7) / 8;
}

static gw_status add_encode(const gw_codec_setup *setup, const gw_codec_call *call, gw_codec_range range,
                            const float *gradient, float *e, void *payload, size_t capacity, size_t *bytes,
                            double *norm2) {
    (void)call, (void)capacity;
    uint8_t *out = payload;
    for (uint64_t at = 0; at < range.count; at += BLOCK) {
        values v = {.x = e + at, .gradient = gradient + at, .e = e + at};
        out += encode_block(setup, v, gw_block_length(range.count, at, BLOCK), out, norm2);
    }
    *bytes = (size_t)(out - (uint8_t *)payload);
    return GW_OK;
}

static gw_status encode(const gw_codec_setup *setup, const gw_codec_call *call, gw_codec_range range,
                        gw_codec_state *state, const float *v, void *payload, size_t capacity, size_t *bytes,
                        gw_error *error) {
    (void)call, (void)state, (void)capacity, (void)error;
    uint8_t *out = payload;
    double norm2 = 0;
    for (uint64_t at = 0; at < range.count; at += BLOCK) {
        out += encode_block(setup, (values){.x = v + at}, gw_block_length(range.count, at, BLOCK), out, &norm2);
    }
    *bytes = (size_t)(out - (uint8_t *)payload);
    return GW_OK;
}

static double take_off(const gw_codec_setup *setup, const gw_codec_call *call, gw_codec_range range,
                       gw_codec_state *state, const void *payload, double norm2) {
    (void)setup, (void)call, (void)norm2;
    const uint8_t *in = payload;
    float *e = gw_codec_residual_at(state, range.first);
    double left = 0;
    for (uint64_t at = 0; at < range.count; at += BLOCK) {
        size_t length = gw_block_length(range.count, at, BLOCK);
        left += take_off_block(in + HEAD, length, gw_get_f32(in), gw_get_f32(in + sizeof(float)), e + at);
        in += HEAD + (length + 7) / 8;
    }
    return left;
}

static gw_status decode_add(const gw_codec_setup *setup, const gw_codec_call *call, gw_codec_range range,
                            const void *payload, size_t bytes, float scale, float *sum, gw_error *error) {
    size_t expected = bound(setup, call, range);
    if (bytes != expected) return gw_codec_length_error(setup->codec, range, bytes, expected, error);
    const uint8_t *in = payload;
    for (uint64_t at = 0; at < range.count; at += BLOCK) {
        size_t length = gw_block_length(range.count, at, BLOCK);
        float low = scale * gw_get_f32(in), high = scale * gw_get_f32(in + sizeof(float));
        add(in + HEAD, length, low, high, sum + at);
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
    .add_encode = add_encode,
    .decode_add = decode_add,
    .take_off = take_off,
};
