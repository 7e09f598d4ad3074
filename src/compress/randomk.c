/* randomk.c - random values, the same places on all ranks (Wangni et al. 2018; Stich, Cordonnier, Jaggi 2018).
 *
 * A block of 65,536 elements is divided into k = ratio * block nearly equal stretches, and one element of each is sent,
 * chosen by seed, step, tensor and element number only. So payloads hold nothing but values (f32, in order) and are
 * reduced in flight by addition. With feedback values are sent as they are; without they are multiplied by the length of
 * their stretch, which makes it unbiased.
 *
 * A block with a NaN or an infinity anywhere sends NaN as its first value, whichever places are chosen. */
#include "compress/codec.h"

#include "base/rng.h"
#include "compress/sparse.h"

#include <math.h>

enum { PARAM_RATIO };
static const gw_codec_param params[] = {
    {.name = "ratio", .about = "share of the values that is sent", .preset = 0.01, .lowest = 1e-5, .highest = 1},
    {0},
};

/* The i-th stretch of a block, and the element of it that is sent, as numbers inside the block. */
typedef struct stretch {
    size_t first, length, chosen;
} stretch;

static stretch stretch_of(uint64_t key, uint64_t block, size_t count, size_t k, size_t i) {
    size_t first = (size_t)((uint64_t)i * count / k), end = (size_t)((uint64_t)(i + 1) * count / k);
    uint32_t word[4];
    gw_philox(key, block, i, word);
    size_t offset = (size_t)((uint64_t)word[0] * (end - first) >> 32);
    return (stretch){.first = first, .length = end - first, .chosen = first + offset};
}

static size_t values(double ratio, gw_codec_range range) {
    size_t whole = range.count / GW_SPARSE_BLOCK, rest = range.count % GW_SPARSE_BLOCK;
    return whole * gw_sparse_k(ratio, GW_SPARSE_BLOCK) + (rest ? gw_sparse_k(ratio, rest) : 0);
}

static size_t bound(const gw_codec_setup *setup, const gw_codec_call *call, gw_codec_range range) {
    (void)call;
    return values(setup->value[PARAM_RATIO], range) * sizeof(float);
}

static void encode_block(uint64_t key, uint64_t block, const float *x, size_t count, size_t k, bool unbiased,
                         uint8_t *out) {
    for (size_t i = 0; i < k; i++) {
        stretch s = stretch_of(key, block, count, k, i);
        gw_put_f32(out + i * sizeof(float), unbiased ? x[s.chosen] * (float)s.length : x[s.chosen]);
    }
    if (gw_kernel_peak(x, count) >= GW_INFINITY_BITS) gw_put_f32(out, NAN);
}

static gw_status encode(const gw_codec_setup *setup, const gw_codec_call *call, gw_codec_range range,
                        gw_codec_state *state, const float *v, void *payload, size_t capacity, size_t *bytes,
                        gw_error *error) {
    (void)state, (void)capacity, (void)error;
    uint64_t key = gw_codec_random_key(call, range.tensor, false);
    uint8_t *out = payload;
    for (uint64_t at = 0; at < range.count; at += GW_SPARSE_BLOCK) {
        size_t length = gw_block_length(range.count, at, GW_SPARSE_BLOCK);
        size_t k = gw_sparse_k(setup->value[PARAM_RATIO], length);
        encode_block(key, (range.first + at) / GW_SPARSE_BLOCK, v + at, length, k, !gw_codec_residual(setup), out);
        out += k * sizeof(float);
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
    for (uint64_t at = 0; at < range.count; at += GW_SPARSE_BLOCK) {
        size_t length = gw_block_length(range.count, at, GW_SPARSE_BLOCK);
        size_t k = gw_sparse_k(setup->value[PARAM_RATIO], length);
        for (size_t i = 0; i < k; i++, in += sizeof(float)) {
            size_t chosen = stretch_of(key, (range.first + at) / GW_SPARSE_BLOCK, length, k, i).chosen;
            sum[at + chosen] += scale * gw_get_f32(in);
        }
    }
    return GW_OK;
}

static void merge(const gw_codec_setup *setup, const gw_codec_call *call, void *into, const void *from, size_t bytes) {
    (void)setup, (void)call;
    gw_kernel_axpy(into, from, 1.0f, bytes / sizeof(float));
}

const gw_codec gw_codec_randomk = {
    .name = "randomk",
    .about = "random values, the same places on all ranks",
    .params = params,
    .feedback = GW_FEEDBACK_WORKER,
    .block = GW_SPARSE_BLOCK,
    .merge_unit = sizeof(float),
    .bound = bound,
    .encode = encode,
    .decode_add = decode_add,
    .merge = merge,
};
