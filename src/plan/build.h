/* build.h - helpers that the builders share: slots, waits, chunks, and the cutting of a range into windows. */
#ifndef GW_PLAN_BUILD_H
#define GW_PLAN_BUILD_H

#include <assert.h>
#include <string.h>

#include "plan/plan.h"

static inline gw_slot gw_slot_at(gw_space space, size_t offset, size_t count) {
    return (gw_slot){.space = space, .offset = offset, .count = count};
}

/* A wait until stream `stream` has completed `steps` steps. 0 steps: no wait. */
static inline gw_waits gw_post_op(uint32_t stream, uint64_t steps) {
    return (gw_waits){.first = stream, .streams = steps > 0, .actions = steps};
}

static inline size_t gw_min_size(size_t a, size_t b) { return a < b ? a : b; }
static inline size_t gw_ceil_div(size_t a, size_t b) { return a / b + (a % b != 0); }

/* A range of elements, from inclusive, to exclusive. */
typedef struct gw_range {
    size_t from, to;
} gw_range;

/* Cuts a range into chunks of at most `chunk` elements, and returns chunk number `index`. */
static inline gw_range gw_chunk_of(gw_range range, size_t chunk, uint64_t index) {
    size_t from = range.from + (size_t)index * chunk;
    return (gw_range){from, from + gw_min_size(chunk, range.to - from)};
}

/* A builder keeps a struct of its own in plan->own. The struct is copied in and out, and is at most as large as that
 * array. */
#define GW_PLAN_KEEP(plan, shape)                                                                                      \
    do {                                                                                                               \
        static_assert(sizeof *(shape) <= sizeof(plan)->own, "a shape must fit into gw_plan.own");                      \
        memcpy((plan)->own, (shape), sizeof *(shape));                                                                 \
    } while (0)
#define GW_PLAN_RECALL(plan, shape) memcpy((shape), (plan)->own, sizeof *(shape))

/* Congestion factors for gw_plan_builder.work. Partners that are far apart, and many senders to one receiver, share
 * links with other pairs, above all with those of the same host. Neighbours in a ring share no links, nor do the two
 * ranks of a world of two. */
#define GW_CONGESTION_PAIRWISE 1.2
#define GW_CONGESTION_HALVING 1.05
#define GW_COST_CHUNK_BYTES (256.0 * 1024)

static inline double gw_cost_congestion(const gw_cost_inputs *s, double factor) {
    return s->ranks > 2 ? factor * s->per_host : 1;
}
static inline bool gw_cost_allreduces(const gw_cost_inputs *s) { return s->collective == GW_COLL_ALLREDUCE; }
static inline bool gw_cost_rooted(const gw_cost_inputs *s) {
    return s->collective == GW_COLL_BROADCAST || s->collective == GW_COLL_REDUCE;
}
/* An all-reduce sends its data there and back, the others one way. */
static inline double gw_cost_directions(const gw_cost_inputs *s) { return gw_cost_allreduces(s) ? 2 : 1; }
static inline int gw_floor_log2(int n) { return 31 - __builtin_clz((unsigned)n); }

/* Elements of the whole collective: the sum of all parts, or the buffer of a collective that has no parts. */
size_t gw_plan_total(const gw_plan_request *request);
/* Where a rank's part lies in the large buffer (collectives that have parts); O(world) with uneven counts. */
gw_range gw_plan_part(const gw_plan_request *request, int rank);
/* The longest part of any rank. */
size_t gw_plan_part_max(const gw_plan_request *request);

/* A range cut for pipelined algorithms in which each of `ways` ranks works on a block: columns of `ways` chunks of at
 * most `chunk` elements, and windows of at most `depth` columns. Only the last window may be less than full. */
typedef struct gw_pipeline_cut {
    size_t count, chunk;
    uint64_t ways, columns, windows;
} gw_pipeline_cut;

typedef struct gw_pipeline_window {
    uint64_t number;  /* of the window */
    uint64_t columns; /* in it */
    uint64_t before;  /* columns in the windows before it */
    uint64_t within;  /* steps into the window */
} gw_pipeline_window;

gw_pipeline_cut gw_pipeline_cut_make(size_t count, uint64_t ways, size_t chunk, int depth);
gw_pipeline_window gw_pipeline_window_at(const gw_pipeline_cut *cut, uint64_t number);
/* The window of step `index` where every column takes `per_column` steps. */
gw_pipeline_window gw_pipeline_window_of_step(const gw_pipeline_cut *cut, uint64_t per_column, uint64_t index);
gw_range gw_pipeline_window_range(const gw_pipeline_cut *cut, const gw_pipeline_window *window);
/* Part `index` of `parts` nearly equal ones of a range. */
gw_range gw_range_part(gw_range range, uint64_t parts, uint64_t index);

#endif
