/* transport_allreduce.c - hands the whole all-reduce to the library under the transport (arch=mpi). That library
 * decides what is sent and in which order the summands are added.
 *
 * Cost: not known here. */
#include "plan/build.h"

#define NATIVE_COUNT_MAX ((size_t)1 << 30) /* elements of one call: MPI counts them in an int */

static const char *refuses(const gw_plan_request *request) {
    if (request->collective != GW_COLL_ALLREDUCE) return "supports only allreduce";
    return request->topology.native ? NULL : "needs transport=mpi, and a type and operation that MPI has";
}

static void lay_out(gw_plan *plan) { plan->streams = 1; }

static void stream(const gw_plan *plan, uint32_t index, gw_stream *out) {
    (void)index;
    *out = (gw_stream){.kind = GW_STREAM_LOCAL, .peer = -1,
                       .actions = gw_ceil_div(plan->request.count, NATIVE_COUNT_MAX)};
}

static void step(const gw_plan *plan, uint32_t index, uint64_t i, gw_action *out) {
    (void)index;
    gw_range at = gw_chunk_of((gw_range){0, plan->request.count}, NATIVE_COUNT_MAX, i);
    *out = (gw_action){.kind = GW_ACTION_NATIVE,
                       .src = gw_slot_at(GW_SPACE_IN, at.from, at.to - at.from),
                       .dst = gw_slot_at(GW_SPACE_OUT, at.from, at.to - at.from)};
}

static gw_cost cost(const gw_plan_request *request) {
    (void)request;
    return (gw_cost){0};
}

const gw_plan_builder gw_plan_transport_allreduce = {
    .technique = {.name = "mpi", .about = "MPI's own all-reduce; only with transport=mpi",
                  .params = GW_PARAMS(GW_PARAM_CHUNK)},
    .refuses = refuses,
    .lay_out = lay_out,
    .stream = stream,
    .action = step,
    .cost = cost,
};
