/* feedback.c - error compensation around any codec (Seide et al. 2014; Karimireddy et al. 2019, "Error feedback fixes
 * SignSGD"): v = g + e is encoded, and e = v - decode(encode(v)) waits for the next step, so nothing is lost for good.
 *
 * Where the learning rate changes, e is multiplied by the old rate over the new (Zheng, Huang, Kwok:
 * "Communication-efficient distributed blockwise momentum SGD with error-feedback", NeurIPS 2019). Otherwise a gradient
 * from the first steps of a warm-up would arrive later with many times its weight.
 *
 * The residual buffer holds v. It is processed in chunks of whole codec blocks that stay in cache from the addition to
 * the subtraction: memory traffic is g and e read once and e written once. Between the rounds of one step
 * (terngrad:shared, powersgd) the buffer holds v: round 0 adds to it, and the last round subtracts.
 *
 * DoubleSqueeze (Tang et al. 2019) is this on both passes: the state of a worker covers its tensors, that of an owner
 * covers the ranges it owns. Both use the same function, the owner with the sum as its gradient. */
#include "compress/codec.h"

#define CHUNK 2048u       /* elements; 8 KiB */
#define SAMPLE_STRIDE 13u /* of a chunk, one of so many elements is sampled or fewer; no divisor of rows */
#define SAMPLE_MOST 8192u /* elements; 32 KiB of stack */

/* Of the values of a chunk, before something is taken off. */
typedef struct sample {
    uint64_t count, from, stride; /* elements from, from + stride, ...; count 0: none is wanted */
    float v[SAMPLE_MOST];
} sample;

/* The stride goes on from chunk to chunk: else the first element of each would count too much. */
static void take_sample(sample *s, bool wanted, uint64_t first, const float *v, uint64_t length) {
    s->stride = length / SAMPLE_STRIDE >= SAMPLE_MOST ? gw_blocks(length, SAMPLE_MOST) | 1 : SAMPLE_STRIDE;
    s->from = (s->stride - first % s->stride) % s->stride;
    s->count = wanted && s->from < length ? gw_blocks(length - s->from, (uint32_t)s->stride) : 0;
    for (uint64_t i = 0; i < s->count; i++) s->v[i] = v[s->from + i * s->stride];
}

/* left: v - decoded, in full. */
static void compare_sample(const sample *s, const float *gradient, const float *left, gw_codec_report *report) {
    for (uint64_t i = 0; i < s->count; i++) {
        uint64_t at = s->from + i * s->stride;
        double g = (double)gradient[at], e = (double)left[at], decoded = (double)s->v[i] - e;
        report->sampled += g * g;
        report->waiting += e * e;
        report->coded += decoded * decoded;
        report->common += g * decoded;
    }
}

static uint64_t chunk_elements(const gw_codec_setup *setup, const gw_codec_call *call, gw_codec_range range) {
    uint32_t block = gw_codec_block(setup);
    if (setup->codec->chunk) return setup->codec->chunk(call, range.tensor);
    if (block == 0) return range.count;
    return block >= CHUNK ? block : CHUNK / block * block;
}

/* The call for a chunk that begins `at` elements into the range. */
static gw_codec_call chunk_call(const gw_codec_setup *setup, const gw_codec_call *call, gw_codec_range range,
                                uint64_t at, uint64_t length) {
    gw_codec_call mine = *call;
    if (call->round == 0) return mine;
    gw_codec_call before = *call;
    before.round--;
    size_t offset = at ? gw_codec_bound(setup, &before, (gw_codec_range){range.tensor, range.first, at}) : 0;
    mine.reduced = (const uint8_t *)call->reduced + offset;
    mine.reduced_bytes = gw_codec_bound(setup, &before, (gw_codec_range){range.tensor, range.first + at, length});
    return mine;
}

/* The bytes that a chunk may use: enough must stay for the blocks after it. */
static size_t chunk_capacity(const gw_codec_setup *setup, size_t room, uint64_t elements_after) {
    uint32_t least = setup->codec->least;
    return least ? room - least * gw_blocks(elements_after, gw_codec_block(setup)) : room;
}

static double accumulate(const gw_codec_setup *setup, const gw_codec_call *call, gw_codec_state *state, uint64_t first,
                         uint64_t length, const float *gradient) {
    if (setup->codec->accumulate) return setup->codec->accumulate(setup, call, state, first, length, gradient);
    return gw_kernel_add(gw_codec_residual_at(state, first), gradient, length);
}

/* e += gradient in the first round, then encodes e; *norm2: the sum of squares of e, 0 in further rounds. */
static gw_status add_encode(const gw_codec_setup *setup, const gw_codec_call *call, gw_codec_range range,
                            gw_codec_state *state, const float *gradient, float *e, uint8_t *out, size_t capacity,
                            size_t *bytes, double *norm2, gw_error *error) {
    const gw_codec *codec = setup->codec;
    *norm2 = 0;
    if (call->round == 0) *norm2 = accumulate(setup, call, state, range.first, range.count, gradient);
    return codec->encode(setup, call, range, state, e, out, capacity, bytes, error);
}

/* e -= decoded; *norm2 is the sum of squares of e: before the subtraction on entry, after it on return. Values that
 * were not finite have arrived as such and are set to 0; a codec that sends a selection keeps the values that it did
 * not select. */
static gw_status take_off(const gw_codec_setup *setup, const gw_codec_call *call, gw_codec_range range,
                          gw_codec_state *state, float *e, const void *payload, size_t bytes, double *norm2,
                          gw_error *error) {
    if (setup->codec->take_off) {
        *norm2 = setup->codec->take_off(setup, call, range, state, payload, *norm2);
        return GW_OK;
    }
    gw_status status = setup->codec->decode_add(setup, call, range, payload, bytes, -1.0f, e, error);
    if (!status) *norm2 = gw_kernel_sanitise(e, range.count);
    return status;
}

/* Chunk after chunk. */
static gw_status encode_chunks(const gw_codec_setup *setup, const gw_codec_call *call, gw_codec_range range,
                               gw_codec_state *state, const float *gradient, void *payload, size_t capacity,
                               size_t *bytes, bool samples, gw_codec_report *lost, gw_error *error) {
    bool last = call->round + 1 == gw_codec_rounds(setup);
    uint64_t chunk = chunk_elements(setup, call, range);
    sample sampled;
    for (uint64_t at = 0; at < range.count; at += chunk) {
        uint64_t length = range.count - at < chunk ? range.count - at : chunk;
        gw_codec_range piece = {range.tensor, range.first + at, length};
        gw_codec_call mine = chunk_call(setup, call, range, at, length);
        float *e = gw_codec_residual_at(state, piece.first);
        if (call->rate_growth != 0 && call->round == 0) gw_kernel_scale(e, 1 / (1 + call->rate_growth), length);
        double norm2;
        uint8_t *out = (uint8_t *)payload + *bytes;
        size_t used = 0, room = chunk_capacity(setup, capacity - *bytes, range.count - at - length);
        gw_status status = add_encode(setup, &mine, piece, state, gradient + at, e, out, room, &used, &norm2, error);
        lost->input += norm2;
        take_sample(&sampled, samples, piece.first, e, length);
        if (!status && last) status = take_off(setup, &mine, piece, state, e, out, used, &norm2, error);
        if (status) return status;
        if (last) lost->error += norm2;
        compare_sample(&sampled, gradient + at, e, lost);
        *bytes += used;
    }
    return GW_OK;
}

gw_status gw_feedback_encode(const gw_codec_setup *setup, const gw_codec_call *call, gw_codec_range range,
                             gw_codec_state *state, const float *gradient, void *payload, size_t capacity,
                             size_t *bytes, gw_codec_report *report, gw_error *error) {
    bool samples = report && report->samples && call->round + 1 == gw_codec_rounds(setup);
    gw_codec_report lost = {0};
    gw_status status = GW_OK;
    if (setup->codec->one_pass && call->round == 0 && !samples && call->rate_growth == 0)
        setup->codec->one_pass(setup, call, range, state, gradient, payload, capacity, bytes, &lost);
    else status = encode_chunks(setup, call, range, state, gradient, payload, capacity, bytes, samples, &lost, error);
    if (!status && report) gw_codec_report_add(report, &lost);
    return status;
}

void gw_codec_flush(const gw_codec_setup *setup, const gw_codec_call *call, gw_codec_range range, gw_codec_state *state,
                    const float *gradient, float *values) {
    size_t bytes = range.count * sizeof *values;
    if (!gw_codec_residual(setup)) {
        memmove(values, gradient, bytes);
        return;
    }
    float *e = gw_codec_residual_at(state, range.first);
    if (call->rate_growth != 0) gw_kernel_scale(e, 1 / (1 + call->rate_growth), range.count);
    accumulate(setup, call, state, range.first, range.count, gradient);
    memcpy(values, e, bytes);
    memset(e, 0, bytes);
}

gw_status gw_measured_encode(const gw_codec_setup *setup, const gw_codec_call *call, gw_codec_range range,
                             const float *gradient, void *payload, size_t capacity, size_t *bytes,
                             gw_codec_report *report, gw_error *error) {
    const gw_codec *codec = setup->codec;
    float rest[GW_SPARSE_BLOCK]; /* 256 KiB of stack, the largest block */
    bool last = call->round + 1 == gw_codec_rounds(setup);
    uint64_t chunk = chunk_elements(setup, call, range);
    sample sampled;
    for (uint64_t at = 0; at < range.count; at += chunk) {
        uint64_t length = range.count - at < chunk ? range.count - at : chunk;
        gw_codec_range piece = {range.tensor, range.first + at, length};
        gw_codec_call mine = chunk_call(setup, call, range, at, length);
        uint8_t *out = (uint8_t *)payload + *bytes;
        size_t used = 0, room = chunk_capacity(setup, capacity - *bytes, range.count - at - length);
        gw_status status = codec->encode(setup, &mine, piece, NULL, gradient + at, out, room, &used, error);
        if (!status && last) {
            memcpy(rest, gradient + at, length * sizeof *rest);
            status = codec->decode_add(setup, &mine, piece, out, used, -1.0f, rest, error);
            report->input += gw_kernel_norm2(gradient + at, length);
            report->error += gw_kernel_norm2(rest, length);
            take_sample(&sampled, report->samples, piece.first, gradient + at, length);
            compare_sample(&sampled, gradient + at, rest, report);
        }
        if (status) return status;
        *bytes += used;
    }
    return GW_OK;
}
