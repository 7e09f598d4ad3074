/* sparse_one_pass.c - the feedback of codecs that send the largest values, in one pass over memory.
 *
 * While the gradient is added to a block of the residual, the elements are listed that reach a guess of the k-th
 * largest. If they are k or more, and not too many, the k largest are among them; else the block, which is still in
 * cache, is searched for them. So the guess only decides how long it takes.
 *
 * The first guess comes from a random sample of the block, other elements in every step, so that no pattern of the
 * gradient can hide from it; each next one is a little below the k-th largest of the block before. */
#include "compress/sparse.h"

#include "base/rng.h"

#include <math.h>

#define RUN 16u       /* elements of a sample that lie side by side: a line of the cache */
#define SAMPLED 1024u /* elements of which a random number of 6 bits chooses a run */
#define RUNS (GW_SPARSE_BLOCK / SAMPLED)
#define LOWEST_BIT 18   /* of the guess: 1/32 of it does not matter */
#define GENEROSITY 1.25 /* by how much the sample's guess lets through more than k ... */
#define SPARE 8         /* ... and in samples */
#define LESS 0.97f      /* of the k-th largest of the block before, where no more is known */

/* Where the runs of a block's sample begin; returns how many. */
static size_t draw(gw_codec_range block, uint64_t key, uint16_t from[RUNS]) {
    uint32_t word[4];
    size_t runs = 0;
    for (size_t at = 0; at + SAMPLED <= block.count; at += SAMPLED, runs++) {
        if (runs % 16 == 0) gw_philox(key, block.first, runs / 16, word);
        from[runs] = (uint16_t)(at + RUN * (word[runs % 4] >> runs / 4 % 4 * 6 & (SAMPLED / RUN - 1)));
    }
    return runs;
}

static uint32_t guess_from_sample(gw_codec_range block, uint64_t key, const float *e, const float *gradient, size_t k) {
    uint32_t sample[RUNS * RUN];
    uint16_t from[RUNS];
    size_t runs = draw(block, key, from), samples = runs * RUN;
    for (size_t r = 0; r < runs; r++)
        for (size_t i = 0; i < RUN; i++)
            sample[r * RUN + i] = gw_magnitude_bits(e[from[r] + i] + gradient[from[r] + i]);
    size_t wanted = (size_t)(GENEROSITY * (double)k * (double)samples / (double)block.count) + SPARE;
    uint32_t least = wanted < samples ? gw_kth_largest(sample, samples, wanted, LOWEST_BIT) : 0;
    if (least == 0) return 1; /* all but zeros */
    return least < GW_INFINITY_BITS ? least : GW_INFINITY_BITS;
}

/* After a block whose k-th largest is about `above`, and of which `found` reached `least`: what k and four standard
 * deviations more would have reached. 0: none. */
static uint32_t next_guess(uint32_t above, uint32_t least, size_t found, size_t k) {
    float high = gw_float_of_bits(above), share = 4 * sqrtf((float)k) / ((float)found - (float)k);
    bool between = found > k && found <= GW_KERNEL_LIST && least < above;
    float low = between && share < 1 ? high - share * (high - gw_float_of_bits(least)) : LESS * high;
    return above < GW_INFINITY_BITS ? gw_magnitude_bits(low) : above;
}

static void put_back(float *e, const uint16_t *index, const float *value, size_t count) {
    for (size_t i = 0; i < count; i++) e[index[i]] = value[i];
}

/* Selects the k largest of a block of which those that reach `least` were moved to the list; true: they are in the
 * list, and e has the others. False: e has all. */
static bool choose(const gw_kernel_list *list, uint32_t least, size_t k, float *e, size_t count, gw_selection *s) {
    if (list->count <= GW_KERNEL_LIST && (list->count >= k || least == 1)) {
        gw_selection others;
        gw_selection_cut(list, k, gw_selection_bound(list, k), s, &others);
        put_back(e, others.list, others.value, others.list_count);
        return true;
    }
    uint32_t peaks[GW_PEAKS];
    put_back(e, list->index, list->value, list->count);
    gw_kernel_peaks32(e, count, peaks);
    gw_select_largest(e, count, peaks, k, s);
    return false;
}

/* Writes what was selected; returns the sum of squares that went. */
static double write(const gw_codec_setup *setup, gw_codec_range block, float *e, const gw_selection *s, bool moved,
                    uint8_t *out, size_t *bytes) {
    bool fits = gw_sparse_bound(block.count, s->list_count) <= *bytes;
    if (moved && !fits) put_back(e, s->list, s->value, s->list_count);
    *bytes = gw_sparse_write(e, block.count, s, out, *bytes);
    return moved && fits ? gw_kernel_norm2(s->value, s->list_count) : gw_sparse_clear(setup, block, out, e);
}

void gw_sparse_one_pass(const gw_codec_setup *setup, const gw_codec_call *call, gw_codec_range range, double ratio,
                        const float *gradient, float *e, uint8_t *payload, size_t capacity, size_t *bytes,
                        gw_codec_report *lost) {
    uint64_t key = gw_codec_random_key(call, range.tensor, true);
    uint32_t block = gw_codec_block(setup), least = 0;
    for (uint64_t at = 0; at < range.count; at += block, e += block, gradient += block) {
        size_t length = gw_block_length(range.count, at, block), k = gw_sparse_k(ratio, length);
        size_t room = gw_sparse_room(setup, range, at + length, capacity - *bytes);
        gw_codec_range mine = {range.tensor, range.first + at, length};
        gw_kernel_list list;
        gw_selection s;
        if (k > GW_KERNEL_LIST / 2) least = GW_KERNEL_NOTHING;
        else if (least == 0) least = guess_from_sample(mine, key, e, gradient, k);
        list.least = least;
        double norm2 = gw_kernel_add_move(e, gradient, length, &list);
        bool moved = choose(&list, least, k, e, length, &s);
        least = next_guess(s.above, least, list.count, k);
        double went = write(setup, mine, e, &s, moved, payload + *bytes, &room);
        *bytes += room;
        lost->input += norm2;
        lost->error += norm2 - went < 0 ? 0 : norm2 - went;
    }
}
