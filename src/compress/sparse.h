/* sparse.h - a few values of a block and their positions: the payload of topk, threshold and dgc.
 *
 * A block is 65,536 elements of the tensor, or fewer where a schedule slices it (gw_sparse_sliced_block).
 *
 * Payload of a block: u24 number of values n, then n gaps, then n values as f32. A gap is the
 * number of elements between a value and the one before it (the first: the start of the block), in bytes of 7 bits,
 * lowest first, the high bit set on all but the last: one byte up to 127, two up to 16,383. At 1 % a value costs about
 * 5.3 bytes, at 0.1 % 6. */
#ifndef GW_COMPRESS_SPARSE_H
#define GW_COMPRESS_SPARSE_H

#include "compress/codec.h"

#define GW_SPARSE_HEAD 3u /* bytes */

#define GW_SELECTION_LIST GW_KERNEL_LIST
#define GW_SELECTION_SPARE 16u /* entries that whole vectors write beyond the end */

/* The order of values: |x| as bits, with everything that is not finite equal at the top. */
static inline uint32_t gw_rank_bits(float x) {
    uint32_t bits = gw_magnitude_bits(x);
    return bits < GW_INFINITY_BITS ? bits : GW_INFINITY_BITS;
}

/* Which values of a block are sent: those in the list, in order of their elements; or, where they are not listed, all
 * of a rank above `above` and the first `ties` that equal it. Of a list that was cut, `above` is a rank that
 * the selected ones reach and the others do not, except for equal ones. */
typedef struct gw_selection {
    uint32_t above;
    size_t ties;
    bool listed;
    size_t list_count;
    uint16_t list[GW_SELECTION_LIST + GW_SELECTION_SPARE]; /* elements, ascending */
    float value[GW_SELECTION_LIST + GW_SELECTION_SPARE];
} gw_selection;

#define GW_PEAKS (GW_SPARSE_BLOCK / 32)

/* The k largest magnitudes, never a zero; of equals the first. NaN and infinities are the largest, and equal. peaks: of
 * each 32 elements (gw_kernel_peaks32). */
void gw_select_largest(const float *x, size_t count, const uint32_t *peaks, size_t k, gw_selection *selection);
/* The same without the fast path. */
void gw_select_largest_reference(const float *x, size_t count, size_t k, gw_selection *selection);
/* Of at most GW_SELECTION_LIST listed elements, a rank that the k largest reach and the others do not, except for some
 * that equal the k-th; 0 where there are at most k. */
uint32_t gw_selection_bound(const gw_kernel_list *all, size_t k);
/* Selects the k largest of a list with that bound, of equals the first. Others: those that are not selected. */
void gw_selection_cut(const gw_kernel_list *all, size_t k, uint32_t above, gw_selection *selection,
                      gw_selection *others);

/* A number that k (from 1) of count numbers below 2^31 reach and no more, with the bits below lowest_bit cleared; where
 * there is none, the k-th largest with these cleared; 0 if there are fewer than k. */
uint32_t gw_kth_largest(const uint32_t *a, size_t count, size_t k, int lowest_bit);
/* How many of count numbers below 2^31 are at least `least`. */
size_t gw_at_least(const uint32_t *a, size_t count, uint32_t least);

/* The most bytes that k of count values take. */
size_t gw_sparse_bound(size_t count, size_t k);
/* Writes a block, as many of the selected values as fit from the first on, and returns the bytes. capacity is at least
 * GW_SPARSE_HEAD. */
size_t gw_sparse_write(const float *x, size_t count, const gw_selection *selection, uint8_t *out, size_t capacity);

/* The number of values that is `ratio` of count: rounded, at least one. */
static inline size_t gw_sparse_k(double ratio, size_t count) {
    size_t k = (size_t)(ratio * (double)count + 0.5);
    return k > 1 ? k : 1;
}

/* The block of tensors that a schedule slices: one from which `ratio` selects at least one value. */
uint32_t gw_sparse_sliced_block(double ratio);
/* The most bytes of a range whose blocks each send that ratio. */
size_t gw_sparse_range_bound(const gw_codec_setup *setup, gw_codec_range range, double ratio);
/* Of `room` bytes, those that a block may use which ends at element `end` of the range: blocks after it need a head. */
static inline size_t gw_sparse_room(const gw_codec_setup *setup, gw_codec_range range, uint64_t end, size_t room) {
    return room - GW_SPARSE_HEAD * gw_blocks(range.count - end, gw_codec_block(setup));
}

/* Encodes the largest of v, each block with that ratio; returns the bytes. */
size_t gw_sparse_encode(const gw_codec_setup *setup, gw_codec_range range, double ratio, const float *v,
                        uint8_t *payload, size_t capacity);
/* The one_pass of a codec that sends the largest (sparse_one_pass.c). */
void gw_sparse_one_pass(const gw_codec_setup *setup, const gw_codec_call *call, gw_codec_range range, double ratio,
                        const float *gradient, float *e, uint8_t *payload, size_t capacity, size_t *bytes,
                        gw_codec_report *lost);

/* The decode_add of sparse codecs: checks everything, then adds. */
gw_status gw_sparse_decode_add(const gw_codec_setup *setup, const gw_codec_call *call, gw_codec_range range,
                               const void *payload, size_t bytes, float scale, float *sum, gw_error *error);
/* Sets the elements that a payload of gw_sparse_write names to 0. Returns the sum of squares that was removed. */
double gw_sparse_clear(const gw_codec_setup *setup, gw_codec_range range, const void *payload, float *x);
/* The take_off of sparse codecs: the residual is cleared where it was sent. */
double gw_sparse_take_off(const gw_codec_setup *setup, const gw_codec_call *call, gw_codec_range range,
                          gw_codec_state *state, const void *payload, double norm2);

#endif
