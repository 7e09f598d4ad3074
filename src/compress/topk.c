/* topk.c - the values of largest magnitude (Aji, Heafield: "Sparse communication for distributed gradient descent",
 * EMNLP 2017; Stich, Cordonnier, Jaggi 2018).
 *
 * Each block of 65,536 elements of the tensor sends its largest `ratio` values, at least one, never zeros; of equal
 * values the first. With blocks the selection does not depend on how a tensor is cut, and stays in cache. Payload:
 * sparse.h. Needs feedback, and is refused without. Where the payload has too little room, the values that do not fit
 * stay in the residual.
 *
 * NaN and infinities count as the largest, so they are sent; those that do not fit wait in the residual. */
#include "compress/sparse.h"

enum { PARAM_RATIO };
static const gw_param params[] = {
    {.name = "ratio", .about = "share of the values that is sent", .kind = GW_PARAM_NUMBER, .preset = 0.01,
     .lowest = 1e-5, .highest = 1},
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

const gw_codec gw_codec_topk = {
    .technique = {.name = "topk", .about = "the largest values of each 65,536, with their positions", .params = params,
                  .examples = GW_CHOICES("ratio=0.01", "ratio=0.001")},
    .encode_rate = 12e9,
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
