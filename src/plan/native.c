/* native.c - the whole all-reduce is handed to the library under the transport (arch=mpi). What travels, and in which
 * order the summands are added, is that library's business.
 *
 * Cost: none that is known here. */
#include "plan/build.h"

#define NATIVE_COUNT_MAX ((size_t)1 << 30) /* elements of one call: MPI counts them in an int */

static const char *refuses(const gw_plan_request *request) {
    if (request->collective != GW_COLL_ALLREDUCE) return "carries only allreduce";
    return request->topology.native ? NULL : "needs transport=mpi, and a type and operation that MPI has";
}

static void lay_out(gw_plan *plan) { plan->streams = 1; }

static void stream(const gw_plan *plan, uint32_t index, gw_stream *out) {
    (void)index;
    *out = (gw_stream){.flow = GW_FLOW_LOCAL, .peer = -1,
                       .steps = gw_ceil_div(plan->request.count, NATIVE_COUNT_MAX)};
}

static void step(const gw_plan *plan, uint32_t index, uint64_t i, gw_action *out) {
    (void)index;
    gw_range at = gw_chunk_of((gw_range){0, plan->request.count}, NATIVE_COUNT_MAX, i);
    *out = (gw_action){.kind = GW_STEP_NATIVE,
                     .src = gw_slot_at(GW_SPACE_IN, at.from, at.to - at.from),
                     .dst = gw_slot_at(GW_SPACE_OUT, at.from, at.to - at.from)};
}

static gw_cost cost(const gw_plan_request *request) {
    (void)request;
    return (gw_cost){0};
}

const gw_plan_builder gw_plan_native = {
    .name = "mpi",
    .about = "MPI's own all-reduce",
    .refuses = refuses,
    .lay_out = lay_out,
    .stream = stream,
    .step = step,
    .cost = cost,
};
