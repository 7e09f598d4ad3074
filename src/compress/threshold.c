/* threshold.c - Gradient Dropping (Aji, Heafield: "Sparse communication for distributed gradient descent", EMNLP 2017):
 * all values above a threshold, which is estimated from a sample and then corrected.
 *
 * The estimate comes from a random sample of the first block of 65,536 elements, other ones in every step, so that no
 * pattern of the gradient can hide from it. It is low on purpose: somewhat more than `ratio` of the block reach it. The
 * correction takes the threshold that `ratio` of these reach, and the next block begins a little below that. Where an
 * estimate let too few or too many through, the whole block is searched instead. So each block sends its largest
 * values, as many as topk, for one pass over the block (sparse_one_pass.c). Payload: sparse.h. Needs feedback, and is
 * refused without.
 *
 * NaN and infinities are above any threshold, so they are sent; those that do not fit stay in the residual. */
#include "compress/sparse.h"

enum { PARAM_RATIO };
static const gw_param params[] = {
    {.name = "ratio", .about = "share of the values that is sent", .kind = GW_PARAM_NUMBER, .preset = 0.01,
     .lowest = 1e-3, .highest = 1},
    GW_CODEC_FEEDBACK(GW_FEEDBACK_BOTH),
    GW_CODEC_FORM,
    GW_CODEC_LIMIT,
    {.name = NULL},
};

static size_t bound(const gw_codec_setup *setup, const gw_codec_call *call, gw_codec_range range) {
    (void)call;
    return gw_sparse_range_bound(setup, range, setup->value[PARAM_RATIO]);
}

static gw_status encode(const gw_codec_setup *setup, const gw_codec_call *call, gw_codec_range range,
                        gw_codec_state *state, const float *v, void *payload, size_t capacity, size_t *bytes,
                        gw_error *error) {
    (void)call, (void)state, (void)error;
    *bytes = gw_sparse_encode(setup, range, setup->value[PARAM_RATIO], v, payload, capacity);
    return GW_OK;
}

static void one_pass(const gw_codec_setup *setup, const gw_codec_call *call, gw_codec_range range,
                     gw_codec_state *state, const float *gradient, void *payload, size_t capacity, size_t *bytes,
                     gw_codec_report *lost) {
    gw_sparse_one_pass(setup, call, range, setup->value[PARAM_RATIO], gradient,
                       gw_codec_residual_at(state, range.first), payload, capacity, bytes, lost);
}

static uint32_t sliced_block(const gw_codec_setup *setup) { return gw_sparse_sliced_block(setup->value[PARAM_RATIO]); }

const gw_codec gw_codec_threshold = {
    .technique = {.name = "threshold",
                  .about = "values above a threshold from a random sample (Gradient Dropping)",
                  .params = params,
                  .examples = GW_CHOICES("ratio=0.01")},
    .encode_rate = 12.5e9,
    .decode_rate = 18e9,
    .trusted = {.error = 5, .aligned = 0.12},
    .selects = true,
    .block = GW_SPARSE_BLOCK,
    .least = GW_SPARSE_HEAD,
    .sliced_block = sliced_block,
    .bound = bound,
    .encode = encode,
    .one_pass = one_pass,
    .decode_add = gw_sparse_decode_add,
    .take_off = gw_sparse_take_off,
};
