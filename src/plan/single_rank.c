/* single_rank.c - a world of one: whatever the collective, the result is what this rank put in; that of a reduction is
 * finished. */
#include "plan/build.h"

static const char *refuses(const gw_plan_request *request) {
    return request->topology.world == 1 ? NULL : "supports only worlds of one rank";
}

static void lay_out(gw_plan *plan) { plan->streams = 1; }

static size_t copied(const gw_plan_request *request) {
    if (request->collective == GW_COLL_ALLTOALLV) return gw_alltoallv_array(request, GW_ALLTOALLV_IN_COUNTS)[0];
    return gw_min_size(gw_plan_in_count(request), gw_plan_out_count(request));
}

static size_t offset(const gw_plan_request *request, gw_alltoallv_part array) {
    return request->collective == GW_COLL_ALLTOALLV ? gw_alltoallv_array(request, array)[0] : 0;
}

static void stream(const gw_plan *plan, uint32_t index, gw_stream *out) {
    (void)index;
    uint64_t steps = gw_ceil_div(copied(&plan->request), plan->request.chunk_count);
    *out = (gw_stream){.kind = GW_STREAM_LOCAL, .peer = -1, .actions = steps};
}

static void step(const gw_plan *plan, uint32_t index, uint64_t i, gw_action *out) {
    (void)index;
    const gw_plan_request *request = &plan->request;
    gw_range at = gw_chunk_of((gw_range){0, copied(request)}, request->chunk_count, i);
    gw_collective what = request->collective;
    bool reduces = what == GW_COLL_ALLREDUCE || what == GW_COLL_REDUCE || what == GW_COLL_REDUCE_SCATTER;
    size_t from = at.from + offset(request, GW_ALLTOALLV_IN_OFFSETS);
    size_t to = at.from + offset(request, GW_ALLTOALLV_OUT_OFFSETS);
    *out = (gw_action){.kind = reduces ? GW_ACTION_FOLD : GW_ACTION_COPY,
                       .src = gw_slot_at(GW_SPACE_IN, from, at.to - at.from),
                       .dst = gw_slot_at(GW_SPACE_OUT, to, at.to - at.from)};
}

static gw_cost cost(const gw_plan_request *request) {
    (void)request;
    return (gw_cost){0};
}

const gw_plan_builder gw_plan_single_rank = {
    .technique = {.name = "alone", .about = "a world of one rank: a copy"},
    .refuses = refuses,
    .lay_out = lay_out,
    .stream = stream,
    .action = step,
    .cost = cost,
};
