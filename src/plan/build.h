/* build.h - what the builders share: slots, waits, chunks, and the cutting of a range into segments. */
#ifndef GW_PLAN_BUILD_H
#define GW_PLAN_BUILD_H

#include <assert.h>
#include <string.h>

#include "plan/plan.h"

static inline gw_slot gw_slot_at(gw_space space, size_t offset, size_t count) {
    return (gw_slot){.space = space, .offset = offset, .count = count};
}

/* Stream `stream` has completed `steps` steps. 0 steps: nothing is waited for. */
static inline gw_waits gw_after(uint32_t stream, uint64_t steps) {
    return (gw_waits){.first = stream, .streams = steps > 0, .steps = steps};
}

static inline size_t gw_min_size(size_t a, size_t b) { return a < b ? a : b; }
static inline size_t gw_ceil_div(size_t a, size_t b) { return a / b + (a % b != 0); }

/* A range of elements, from inclusive, to exclusive. */
typedef struct gw_range {
    size_t from, to;
} gw_range;

/* The index-th of the chunks of at most `chunk` elements that a range is cut into. */
static inline gw_range gw_chunk_of(gw_range range, size_t chunk, uint64_t index) {
    size_t from = range.from + (size_t)index * chunk;
    return (gw_range){from, from + gw_min_size(chunk, range.to - from)};
}

/* A builder keeps its numbers in plan->own: own structs of at most that size, copied in and out. */
#define GW_PLAN_KEEP(plan, shape)                                                                                      \
    do {                                                                                                               \
        static_assert(sizeof *(shape) <= sizeof(plan)->own, "a shape must fit into gw_plan.own");                      \
        memcpy((plan)->own, (shape), sizeof *(shape));                                                                 \
    } while (0)
#define GW_PLAN_RECALL(plan, shape) memcpy((shape), (plan)->own, sizeof *(shape))

/* Elements of the whole collective: the sum of all parts, or the buffer of a collective that has no parts. */
size_t gw_plan_total(const gw_plan_request *request);
/* Where a rank's part lies in the large buffer (collectives that have parts); O(world) with uneven counts. */
gw_range gw_plan_part(const gw_plan_request *request, int rank);
/* The longest part of any rank. */
size_t gw_plan_part_max(const gw_plan_request *request);

/* A range cut for pipelined algorithms in which `ways` ranks work on a block each: columns of `ways` pieces of at most
 * `piece` elements, and segments of at most `depth` columns. Only the last segment may be less than full. */
typedef struct gw_segments {
    size_t count, piece;
    uint64_t ways, columns, segments;
} gw_segments;

typedef struct gw_segment {
    uint64_t number;  /* of the segment */
    uint64_t columns; /* in it */
    uint64_t before;  /* columns in the segments before it */
    uint64_t within;  /* steps into the segment */
} gw_segment;

gw_segments gw_segments_cut(size_t count, uint64_t ways, size_t chunk, int depth);
gw_segment gw_segment_number(const gw_segments *cut, uint64_t number);
/* The segment of step `index` where every column takes `per_column` steps. */
gw_segment gw_segment_of_step(const gw_segments *cut, uint64_t per_column, uint64_t index);
gw_range gw_segment_range(const gw_segments *cut, const gw_segment *segment);
/* Piece `index` of `pieces` nearly equal ones of a range. */
gw_range gw_piece_of(gw_range range, uint64_t pieces, uint64_t index);

#endif
