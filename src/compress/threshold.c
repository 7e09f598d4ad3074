/* threshold.c - Gradient Dropping (Aji, Heafield: "Sparse communication for distributed gradient descent", EMNLP 2017):
 * all values above a threshold, which is estimated from a sample and then corrected.
 *
 * In each block of 65,536 elements one of every 16 is sampled at random; other ones in every step, so that no pattern
 * of the gradient can hide from it. The estimate is low on purpose: somewhat more than `ratio` of the block reach it.
 * The correction takes the threshold that `ratio` of these reach. Where the estimate let too few or too many through,
 * the whole block is searched instead. So each block sends its largest values, as many as topk, for one pass over the
 * block and the sample. Payload: sparse.h. Needs feedback, and is refused without.
 *
 * NaN and infinities are above any threshold, so they are sent; those that do not fit stay in the residual. */
#include "compress/sparse.h"

#include "base/rng.h"

#define STRIDE 16u      /* elements for each sample; a random number of 4 bits chooses one */
#define DRAWN 32u       /* such numbers in four words */
#define RUN 16          /* elements that are looked at together */
#define GENEROSITY 1.25 /* by how much the estimate exceeds the ratio ... */
#define SPARE 4         /* ... in samples */

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

static size_t draw(const float *x, size_t count, uint64_t key, uint64_t block, float *sample) {
    uint32_t word[4];
    size_t samples = 0;
    for (size_t at = 0; at + STRIDE <= count; at += STRIDE, samples++) {
        if (samples % DRAWN == 0) gw_philox(key, block, samples / DRAWN, word);
        sample[samples] = x[at + (word[samples / 8 % 4] >> samples % 8 * 4 & (STRIDE - 1))];
    }
    return samples;
}

/* The magnitude that somewhat more than k of count elements reach. */
static uint32_t estimate(const float *sample, size_t samples, size_t count, size_t k) {
    gw_selection s;
    size_t wanted = (size_t)(GENEROSITY * (double)k * (double)samples / (double)count) + SPARE;
    if (wanted >= samples) return 1; /* all but zeros */
    gw_select_largest(sample, samples, wanted, &s);
    return s.above;
}

/* Whether an element of a run is at least `least`. The difference is negative for those below it; the compiler
 * vectorises the loop. */
static bool any(const float *x, uint32_t least) {
    uint32_t below = UINT32_MAX;
    for (int i = 0; i < RUN; i++) below &= gw_magnitude_bits(x[i]) - least;
    return below >> 31 == 0;
}

/* Lists the elements of at least `least`; false if they are too many. */
static bool list(const float *x, size_t count, uint32_t least, gw_selection *s) {
    size_t found = 0;
    for (size_t at = 0; at < count; at += RUN) {
        size_t end = at + RUN < count ? at + RUN : count;
        if (end == at + RUN && !any(x + at, least)) continue;
        if (found + RUN > GW_SELECTION_LIST) return false;
        for (size_t i = at; i < end; i++) {
            s->list[found] = (uint16_t)i;
            found += gw_rank_bits(x[i]) >= least;
        }
    }
    s->list_count = found;
    s->listed = true;
    return true;
}

/* The threshold that k of the listed elements reach; false if there are fewer. */
static bool correct(const float *x, size_t k, gw_selection *s) {
    float listed[GW_SELECTION_LIST];
    gw_selection among;
    if (s->list_count < k) return false;
    for (size_t i = 0; i < s->list_count; i++) listed[i] = x[s->list[i]];
    gw_select_largest(listed, s->list_count, k, &among);
    s->above = among.above;
    s->ties = among.ties;
    return true;
}

static void select(const float *x, size_t count, size_t k, uint64_t key, uint64_t block, gw_selection *s) {
    float sample[GW_SPARSE_BLOCK / STRIDE];
    size_t samples = draw(x, count, key, block, sample);
    if (!list(x, count, estimate(sample, samples, count, k), s) || !correct(x, k, s)) gw_select_largest(x, count, k, s);
}

static gw_status encode(const gw_codec_setup *setup, const gw_codec_call *call, gw_codec_range range,
                        gw_codec_state *state, const float *v, void *payload, size_t capacity, size_t *bytes,
                        gw_error *error) {
    (void)state, (void)error;
    uint64_t key = gw_codec_random_key(call, range.tensor, true);
    uint32_t block = gw_codec_block(setup);
    size_t used = 0;
    for (uint64_t at = 0; at < range.count; at += block) {
        size_t length = gw_block_length(range.count, at, block);
        size_t kept = GW_SPARSE_HEAD * gw_blocks(range.count - at - length, block); /* for heads after it */
        gw_selection selection;
        select(v + at, length, gw_sparse_k(setup->value[PARAM_RATIO], length), key, (range.first + at) / block,
               &selection);
        used += gw_sparse_write(v + at, length, &selection, (uint8_t *)payload + used, capacity - used - kept);
    }
    *bytes = used;
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
    .decode_add = gw_sparse_decode_add,
    .take_off = gw_sparse_take_off,
};
