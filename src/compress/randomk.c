/* randomk.c - random values, the same positions on all ranks (Wangni et al. 2018; Stich, Cordonnier, Jaggi 2018).
 *
 * A block of 65,536 elements is divided into k = ratio * block nearly equal stretches, and one element of each is sent,
 * chosen by seed, step, tensor and element number only. So payloads hold only values (f32, in order) and are reduced in
 * flight by addition. With feedback values are sent unchanged; without it they are multiplied by the length of their
 * stretch, which makes the codec unbiased.
 *
 * A block with a NaN or an infinity anywhere sends NaN as its first value, whichever positions are chosen. */
#include "compress/codec.h"

#include "base/rng.h"
#include "compress/sparse.h"

#include <math.h>

enum { PARAM_RATIO };
static const gw_param params[] = {
    {.name = "ratio", .about = "share of the values that is sent", .kind = GW_PARAM_NUMBER, .preset = 0.01,
     .lowest = 1e-5, .highest = 1},
    GW_CODEC_FEEDBACK(GW_FEEDBACK_WORKER),
    GW_CODEC_FORM,
    {.name = NULL},
};

/* An iterator over the stretches of a block: elements [first, end) of it, of which `chosen` is sent. */
typedef struct stretch {
    uint64_t key, block;
    size_t count, k; /* elements, stretches */
    size_t i;        /* the stretch that comes next */
    size_t first, end, chosen;
    uint32_t word[4]; /* one for each stretch: Philox(key, block, i / 4), word i % 4 */
} stretch;

static bool next_stretch(stretch *s) {
    if (s->i == s->k) return false;
    if (s->i % 4 == 0) gw_philox(s->key, s->block, s->i / 4, s->word);
    s->first = s->end;
    s->end = (size_t)((uint64_t)(s->i + 1) * s->count / s->k);
    s->chosen = s->first + (size_t)((uint64_t)s->word[s->i % 4] * (s->end - s->first) >> 32);
    s->i++;
    return true;
}

static size_t values(uint32_t block, double ratio, gw_codec_range range) {
    size_t whole = range.count / block, rest = range.count % block;
    return whole * gw_sparse_k(ratio, block) + (rest ? gw_sparse_k(ratio, rest) : 0);
}

static uint32_t sliced_block(const gw_codec_setup *setup) { return gw_sparse_sliced_block(setup->value[PARAM_RATIO]); }

static size_t bound(const gw_codec_setup *setup, const gw_codec_call *call, gw_codec_range range) {
    (void)call;
    return values(gw_codec_block(setup), setup->value[PARAM_RATIO], range) * sizeof(float);
}

static stretch stretches_of(const gw_codec_setup *setup, uint64_t key, gw_codec_range range, uint64_t at) {
    uint32_t block = gw_codec_block(setup);
    size_t length = gw_block_length(range.count, at, block);
    return (stretch){.key = key,
                     .block = (range.first + at) / block,
                     .count = length,
                     .k = gw_sparse_k(setup->value[PARAM_RATIO], length)};
}

static uint8_t *encode_block(stretch s, const float *x, bool unbiased, uint8_t *out) {
    uint8_t *first = out;
    for (; next_stretch(&s); out += sizeof(float)) {
        gw_put_f32(out, unbiased ? x[s.chosen] * (float)(s.end - s.first) : x[s.chosen]);
    }
    if (gw_kernel_peak(x, s.count) >= GW_INFINITY_BITS) gw_put_f32(first, NAN);
    return out;
}

static gw_status encode(const gw_codec_setup *setup, const gw_codec_call *call, gw_codec_range range,
                        gw_codec_state *state, const float *v, void *payload, size_t capacity, size_t *bytes,
                        gw_error *error) {
    (void)state, (void)capacity, (void)error;
    uint64_t key = gw_codec_random_key(call, range.tensor, false);
    bool unbiased = !gw_codec_residual(setup) && call->pass == 0; /* an owner encodes sums of the same places */
    uint8_t *out = payload;
    for (uint64_t at = 0; at < range.count; at += gw_codec_block(setup)) {
        out = encode_block(stretches_of(setup, key, range, at), v + at, unbiased, out);
    }
    *bytes = (size_t)(out - (uint8_t *)payload);
    return GW_OK;
}

static gw_status decode_add(const gw_codec_setup *setup, const gw_codec_call *call, gw_codec_range range,
                            const void *payload, size_t bytes, float scale, float *sum, gw_error *error) {
    size_t expected = bound(setup, call, range);
    if (bytes != expected) return gw_codec_length_error(setup->codec, range, bytes, expected, error);
    uint64_t key = gw_codec_random_key(call, range.tensor, false);
    const uint8_t *in = payload;
    for (uint64_t at = 0; at < range.count; at += gw_codec_block(setup)) {
        stretch s = stretches_of(setup, key, range, at);
        for (; next_stretch(&s); in += sizeof(float)) sum[at + s.chosen] += scale * gw_get_f32(in);
    }
    return GW_OK;
}

static void merge(const gw_codec_setup *setup, const gw_codec_call *call, void *into, const void *from, size_t bytes) {
    (void)setup, (void)call;
    gw_kernel_axpy(into, from, 1.0f, bytes / sizeof(float));
}

const gw_codec gw_codec_randomk = {
    .technique = {.name = "randomk", .about = "random values, the same places on all ranks", .params = params,
                  .examples = GW_CHOICES("ratio=0.01")},
    .encode_rate = 9.9e9,
    .decode_rate = 12e9,
    .unbiased = true,
    .block = GW_SPARSE_BLOCK,
    .merge_unit = sizeof(float),
    .sliced_block = sliced_block,
    .bound = bound,
    .encode = encode,
    .decode_add = decode_add,
    .merge = merge,
};
