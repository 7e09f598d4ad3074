/* threshold.c - Gradient Dropping (Aji, Heafield: "Sparse communication for distributed gradient descent", EMNLP 2017):
 * all values above a threshold, which is estimated from a sample and then corrected.
 *
 * In each block of 65,536 elements one run of 16 in every 256 is sampled at random; other ones in every step, so that
 * no pattern of the gradient can hide from it. The estimate is low on purpose: somewhat more than `ratio` of the block
 * reach it. The correction takes the threshold that `ratio` of these reach. Where the estimate let too few or too many
 * through, the whole block is searched instead. So each block sends its largest values, as many as topk, for one pass
 * over the block and the sample. Payload: sparse.h. Needs feedback, and is refused without.
 *
 * NaN and infinities are above any threshold, so they are sent; those that do not fit stay in the residual. */
#include "compress/sparse.h"

#include "base/rng.h"

#define STRIDE 16u                /* elements for each sample, and samples that lie side by side: a line of the cache */
#define STRETCH (STRIDE * STRIDE) /* elements of which a random number of 4 bits chooses a run */
#define DRAWN 32u                 /* such numbers in four words */
#define LOWEST_BIT 18             /* of the estimate: 1/32 of it does not matter */
#define GENEROSITY 1.25           /* by how much the estimate exceeds the ratio ... */
#define SPARE 4                   /* ... in samples */

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

/* Fills sample with magnitudes as bits; returns how many. */
static size_t draw(const float *x, size_t count, uint64_t key, uint64_t block, uint32_t *sample) {
    uint32_t word[4];
    size_t runs = 0;
    for (size_t at = 0; at + STRETCH <= count; at += STRETCH, runs++) {
        if (runs % DRAWN == 0) gw_philox(key, block, runs / DRAWN, word);
        const float *run = x + at + STRIDE * (word[runs / 8 % 4] >> runs % 8 * 4 & (STRIDE - 1));
        for (size_t i = 0; i < STRIDE; i++) sample[runs * STRIDE + i] = gw_magnitude_bits(run[i]);
    }
    return runs * STRIDE;
}

/* The magnitude that somewhat more than k of count elements reach. */
static uint32_t estimate(const uint32_t *sample, size_t samples, size_t count, size_t k) {
    size_t wanted = (size_t)(GENEROSITY * (double)k * (double)samples / (double)count) + SPARE;
    uint32_t least = wanted < samples ? gw_kth_largest(sample, samples, wanted, LOWEST_BIT) : 0;
    if (least == 0) return 1; /* all but zeros */
    return least < GW_INFINITY_BITS ? least : GW_INFINITY_BITS;
}

static void select(const gw_codec_call *call, const gw_codec_tensor *tensor, uint64_t number, const float *x,
                   size_t count, const uint32_t *peaks, size_t k, gw_selection *s) {
    uint32_t sample[GW_SPARSE_BLOCK / STRIDE];
    size_t samples = draw(x, count, gw_codec_random_key(call, tensor, true), number, sample);
    uint32_t least = estimate(sample, samples, count, k);
    if (gw_selection_list(x, count, peaks, least, s) && s->list_count >= k) gw_selection_cut(s, k);
    else gw_select_largest(x, count, peaks, k, s);
}

static gw_status add_encode(const gw_codec_setup *setup, const gw_codec_call *call, gw_codec_range range,
                            const float *gradient, float *e, void *payload, size_t capacity, size_t *bytes,
                            double *norm2) {
    *bytes = gw_sparse_add_encode(setup, call, range, select, setup->value[PARAM_RATIO], gradient, e, payload, capacity,
                                  norm2);
    return GW_OK;
}

static gw_status encode(const gw_codec_setup *setup, const gw_codec_call *call, gw_codec_range range,
                        gw_codec_state *state, const float *v, void *payload, size_t capacity, size_t *bytes,
                        gw_error *error) {
    (void)state, (void)error;
    *bytes = gw_sparse_encode(setup, call, range, select, setup->value[PARAM_RATIO], v, payload, capacity);
    return GW_OK;
}

static uint32_t sliced_block(const gw_codec_setup *setup) { return gw_sparse_sliced_block(setup->value[PARAM_RATIO]); }

const gw_codec gw_codec_threshold = {
    .technique = {.name = "threshold",
                  .about = "values above a threshold from a random sample (Gradient Dropping)",
                  .params = params,
                  .examples = GW_CHOICES("ratio=0.01")},
    .encode_rate = 2.3e9,
    .decode_rate = 16.4e9,
    .trusted = {.error = 5, .aligned = 0.12},
    .selects = true,
    .block = GW_SPARSE_BLOCK,
    .least = GW_SPARSE_HEAD,
    .sliced_block = sliced_block,
    .bound = bound,
    .encode = encode,
    .add_encode = add_encode,
    .decode_add = gw_sparse_decode_add,
    .take_off = gw_sparse_take_off,
};
