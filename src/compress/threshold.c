/* threshold.c - all values above an estimated threshold (Aji, Heafield: "Sparse communication for distributed gradient
 * descent", EMNLP 2017: Gradient Dropping with a sampled threshold).
 *
 * In each block of 65,536 elements every 16th is sampled; the threshold of the block is the value that the largest
 * `ratio` of the samples reach. So the size of payloads varies around the ratio. The bound leaves room for four times
 * as many, and values that do not fit stay in the residual. Payload: sparse.h. Needs feedback.
 *
 * NaN and infinities are above any threshold, so they are sent; those that do not fit stay in the residual. */
#include "compress/sparse.h"

#define STRIDE 16u
#define SLACK 4.0

enum { PARAM_RATIO };
static const gw_param params[] = {
    {.name = "ratio", .about = "approximate share of the values that is sent", .kind = GW_PARAM_NUMBER, .preset = 0.01,
     .lowest = 1e-3, .highest = 1},
    GW_CODEC_FEEDBACK(GW_FEEDBACK_BOTH),
    GW_CODEC_FORM,
    GW_CODEC_LIMIT,
    {.name = NULL},
};

static double most(const gw_codec_setup *setup) {
    double ratio = setup->value[PARAM_RATIO] * SLACK;
    return ratio < 1 ? ratio : 1;
}

static size_t bound(const gw_codec_setup *setup, const gw_codec_call *call, gw_codec_range range) {
    (void)call;
    return gw_sparse_range_bound(setup, range, most(setup));
}

static void estimate(const float *x, size_t count, double ratio, gw_selection *selection) {
    float sample[GW_SPARSE_BLOCK / STRIDE];
    size_t samples = 0;
    for (size_t i = 0; i < count; i += STRIDE) sample[samples++] = x[i];
    gw_select_largest(sample, samples, gw_sparse_k(ratio, samples), selection);
    selection->ties = count;
    selection->listed = false;
}

/* Values beyond the slack, after a bad estimate, are not sent. */
static gw_status encode(const gw_codec_setup *setup, const gw_codec_call *call, gw_codec_range range,
                        gw_codec_state *state, const float *v, void *payload, size_t capacity, size_t *bytes,
                        gw_error *error) {
    (void)call, (void)state, (void)error;
    uint32_t block = gw_codec_block(setup);
    size_t used = 0;
    for (uint64_t at = 0; at < range.count; at += block) {
        size_t length = gw_block_length(range.count, at, block);
        size_t kept = GW_SPARSE_HEAD * gw_blocks(range.count - at - length, block);
        size_t room = gw_sparse_bound(length, gw_sparse_k(most(setup), length));
        if (room > capacity - used - kept) room = capacity - used - kept;
        gw_selection selection;
        estimate(v + at, length, setup->value[PARAM_RATIO], &selection);
        used += gw_sparse_write(v + at, length, &selection, (uint8_t *)payload + used, room);
    }
    *bytes = used;
    return GW_OK;
}

/* The threshold comes from a sample, so this must have a value above it. */
static uint32_t sliced_block(const gw_codec_setup *setup) {
    return gw_sparse_sliced_block(setup->value[PARAM_RATIO] / STRIDE);
}

const gw_codec gw_codec_threshold = {
    .technique = {.name = "threshold",
                  .about = "values above a sampled threshold (Gradient Dropping)",
                  .params = params,
                  .examples = GW_CHOICES("ratio=0.01")},
    .encode_rate = 4.1e9,
    .decode_rate = 16.4e9,
    .block = GW_SPARSE_BLOCK,
    .least = GW_SPARSE_HEAD,
    .sliced_block = sliced_block,
    .bound = bound,
    .encode = encode,
    .decode_add = gw_sparse_decode_add,
    .take_off = gw_sparse_take_off,
};
