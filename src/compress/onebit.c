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
#include "compress/onebit_kernels.h"

#include <math.h>

#define BLOCK GW_ONEBIT_BLOCK
#define LANES GW_ONEBIT_LANES
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

static size_t bound(const gw_codec_setup *setup, const gw_codec_call *call, gw_codec_range range) {
    (void)setup, (void)call;
    return gw_blocks(range.count, BLOCK) * HEAD + (range.count + 7) / 8;
}

static void divide_plain(const float *x, size_t from, size_t count, float threshold, bool weighted, uint8_t *bits,
                         gw_onebit_sides *s) {
    for (size_t i = from; i < count; i++) {
        bool high = x[i] >= threshold;
        float above = x[i] - threshold, square = above * above;
        gw_onebit_side *mine = high ? &s->high : &s->low;
        if (i % 8 == 0) bits[i / 8] = 0;
        bits[i / 8] |= (uint8_t)(high << i % 8);
        if (!weighted) mine->sum[i % LANES] += above;
        if (weighted) mine->squares[i % LANES] += square;
        if (weighted) mine->cubes[i % LANES] += square * above;
        mine->count++;
    }
}

static void add_plain(gw_onebit_coded coded, size_t from, size_t count, float *x) {
    for (size_t i = from; i < count; i++) x[i] += coded.bits[i / 8] >> i % 8 & 1 ? coded.high : coded.low;
}

/* NULL: the plain functions do everything. */
static const gw_onebit_kernels *fast(void) {
#if defined(__x86_64__)
    if (gw_cpu() >= GW_CPU_AVX512) return &gw_onebit_avx512;
    if (gw_cpu() >= GW_CPU_AVX2) return &gw_onebit_avx2;
#endif
    return NULL;
}

static void divide(const float *x, size_t count, float threshold, bool weighted, uint8_t *bits, gw_onebit_sides *s) {
    *s = (gw_onebit_sides){.low = {.count = 0}};
    size_t done = fast() ? fast()->divide(x, count, threshold, weighted, bits, s) : 0;
    divide_plain(x, done, count, threshold, weighted, bits, s);
}

static void add(gw_onebit_coded coded, size_t count, float *x) {
    add_plain(coded, fast() ? fast()->add(coded, count, x) : 0, count, x);
}

/* What an encoded block takes off the residual. */
static gw_onebit_coded sent(const uint8_t *block) {
    return (gw_onebit_coded){block + HEAD, -gw_get_f32(block), -gw_get_f32(block + sizeof(float))};
}

/* e -= what was sent, of a block; returns its sum of squares. */
static double take_off_block(const uint8_t *block, size_t count, float *e) {
    float lane[GW_KERNEL_NORM_LANES] = {0};
    size_t done = fast() ? fast()->take_off(sent(block), count, e, lane) : 0;
    add_plain(sent(block), done, count, e);
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

static float plain_mean(const gw_onebit_side *s) { return s->count ? total(s->sum) / (float)s->count : 0.0f; }

/* The mean weighted by squares; false where it leaves the range of f32. */
static bool weighted_mean(const gw_onebit_side *s, float *mean) {
    float squares = total(s->squares), cubes = total(s->cubes);
    *mean = s->count ? cubes / squares : 0.0f;
    return s->count == 0 || (isnormal(squares) && isnormal(cubes));
}

/* The decoded values of the sides of a block that was divided, weighted, with these sums. */
static void put_weighted(const float *x, size_t count, float threshold, gw_onebit_sides *s, uint8_t *out) {
    float low, high;
    bool low_fits = weighted_mean(&s->low, &low), high_fits = weighted_mean(&s->high, &high);
    if (!low_fits || !high_fits) {
        divide(x, count, threshold, false, out + HEAD, s);
        if (!low_fits) low = plain_mean(&s->low);
        if (!high_fits) high = plain_mean(&s->high);
    }
    gw_put_f32(out, threshold + low);
    gw_put_f32(out + sizeof(float), threshold + high);
}

static float mean_of(const float *x, size_t count, uint8_t *bits) {
    gw_onebit_sides s;
    divide(x, count, 0, false, bits, &s);
    return (total(s.low.sum) + total(s.high.sum)) / (float)count;
}

static size_t encode_block(const gw_codec_setup *setup, const float *x, size_t count, uint8_t *out) {
    bool weighted = gw_codec_residual(setup);
    float threshold = setup->value[PARAM_THRESHOLD] != 0 ? mean_of(x, count, out + HEAD) : 0;
    gw_onebit_sides s;
    divide(x, count, threshold, weighted, out + HEAD, &s);
    if (weighted) put_weighted(x, count, threshold, &s, out);
    else {
        gw_put_f32(out, threshold + plain_mean(&s.low));
        gw_put_f32(out + sizeof(float), threshold + plain_mean(&s.high));
    }
    return HEAD + (count + 7) / 8;
}

static gw_status encode(const gw_codec_setup *setup, const gw_codec_call *call, gw_codec_range range,
                        gw_codec_state *state, const float *v, void *payload, size_t capacity, size_t *bytes,
                        gw_error *error) {
    (void)call, (void)state, (void)capacity, (void)error;
    uint8_t *out = payload;
    for (uint64_t at = 0; at < range.count; at += BLOCK)
        out += encode_block(setup, v + at, gw_block_length(range.count, at, BLOCK), out);
    *bytes = (size_t)(out - (uint8_t *)payload);
    return GW_OK;
}

/* e += gradient of a whole block, which is encoded, while the block before it is taken off; returns the squares that
 * are left of that. */
static double turn(const float *gradient, float *e, const uint8_t *before, uint8_t *out, double *norm2) {
    float lane[GW_KERNEL_NORM_LANES];
    gw_onebit_sides s;
    fast()->turn(e, gradient, out + HEAD, &s, sent(before), lane);
    *norm2 += (double)total(s.low.squares) + (double)total(s.high.squares);
    put_weighted(e, BLOCK, 0, &s, out);
    return gw_lanes_sum(lane, GW_KERNEL_NORM_LANES);
}

static void one_pass(const gw_codec_setup *setup, const gw_codec_call *call, gw_codec_range range,
                     gw_codec_state *state, const float *gradient, void *payload, size_t capacity, size_t *bytes,
                     gw_codec_report *lost) {
    float *e = gw_codec_residual_at(state, range.first);
    (void)call, (void)capacity;
    bool turns = fast() && setup->value[PARAM_THRESHOLD] == 0;
    uint8_t *out = payload;
    for (uint64_t at = 0; at < range.count; at += BLOCK, e += BLOCK, gradient += BLOCK) {
        size_t length = gw_block_length(range.count, at, BLOCK);
        uint8_t *before = out - HEAD - BLOCK / 8;
        if (turns && at && length == BLOCK) lost->error += turn(gradient, e, before, out, &lost->input);
        else {
            if (at) lost->error += take_off_block(before, BLOCK, e - BLOCK);
            lost->input += gw_kernel_add(e, gradient, length);
            encode_block(setup, e, length, out);
        }
        out += HEAD + (length + 7) / 8;
        if (at + length == range.count) lost->error += take_off_block(out - HEAD - (length + 7) / 8, length, e);
    }
    *bytes = (size_t)(out - (uint8_t *)payload);
}

static double take_off(const gw_codec_setup *setup, const gw_codec_call *call, gw_codec_range range,
                       gw_codec_state *state, const void *payload, double norm2) {
    (void)setup, (void)call, (void)norm2;
    const uint8_t *in = payload;
    float *e = gw_codec_residual_at(state, range.first);
    double left = 0;
    for (uint64_t at = 0; at < range.count; at += BLOCK) {
        size_t length = gw_block_length(range.count, at, BLOCK);
        left += take_off_block(in, length, e + at);
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
        add((gw_onebit_coded){in + HEAD, low, high}, length, sum + at);
        in += HEAD + (length + 7) / 8;
    }
    return GW_OK;
}

const gw_codec gw_codec_onebit = {
    .technique = {.name = "onebit", .about = "one bit a value, two levels per 2,048 (1-bit SGD)", .params = params},
    .encode_rate = 14e9,
    .decode_rate = 21e9,
    .trusted = {.error = 5, .aligned = 0.08},
    .block = BLOCK,
    .bound = bound,
    .encode = encode,
    .one_pass = one_pass,
    .decode_add = decode_add,
    .take_off = take_off,
};
