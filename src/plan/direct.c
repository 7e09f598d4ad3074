/* direct.c - one host: every rank reduces its slice straight from all buffers in shared memory, in rank order, and
 * pushes the result into all. The plan is one SHM step; the executor decides how it is done.
 *
 * Cost: no message; all-reduce reads p*n and writes p*n elements over all ranks together. */
#include "plan/build.h"

/* True if the parts are those of gw_part, as SHM steps cut by themselves. */
static bool parts_are_even(const gw_plan_request *request) {
    int world = request->topology.world;
    size_t total = gw_plan_total(request), offset, length;
    for (int r = 0; r < world; r++) {
        gw_part(total, world, r, &offset, &length);
        if (request->counts[r] != length) return false;
    }
    return true;
}

static const char *refuses(const gw_plan_request *request) {
    switch (request->collective) {
    case GW_COLL_ALLREDUCE:
    case GW_COLL_REDUCE_SCATTER:
    case GW_COLL_ALLGATHER:
    case GW_COLL_BROADCAST:
    case GW_COLL_BARRIER: break;
    default: return "supports only allreduce, reduce_scatter, allgather, broadcast and barrier";
    }
    if (!request->topology.coll) return "needs ranks that share memory";
    return gw_topology_hosts(&request->topology) > 1 ? "needs all ranks on one host" : NULL;
}

static void lay_out(gw_plan *plan) { plan->streams = 1; }

/* An SHM all-gather pushes its part from OUT, so IN is copied there first. Every rank has as many copies; the last one
 * of a shorter part may be empty. */
static uint64_t copies(const gw_plan_request *request) {
    if (request->collective != GW_COLL_ALLGATHER) return 0;
    return gw_ceil_div(gw_plan_part_max(request), request->chunk_count);
}

static void stream(const gw_plan *plan, uint32_t index, gw_stream *out) {
    (void)index;
    *out = (gw_stream){.kind = GW_STREAM_LOCAL, .peer = -1, .actions = copies(&plan->request) + 1};
}

static gw_shm_task task_of(gw_collective collective) {
    switch (collective) {
    case GW_COLL_ALLREDUCE: return GW_SHM_TASK_ALLREDUCE;
    case GW_COLL_REDUCE_SCATTER: return GW_SHM_TASK_REDUCE_SCATTER;
    case GW_COLL_ALLGATHER: return GW_SHM_TASK_ALLGATHER;
    case GW_COLL_BROADCAST: return GW_SHM_TASK_BROADCAST;
    default: return GW_SHM_TASK_BARRIER;
    }
}

static void step(const gw_plan *plan, uint32_t index, uint64_t i, gw_action *out) {
    (void)index;
    const gw_plan_request *request = &plan->request;
    if (i < copies(request)) {
        gw_range own = gw_plan_part(request, request->rank);
        size_t before = gw_min_size((size_t)i * request->chunk_count, own.to - own.from);
        gw_range at = gw_chunk_of((gw_range){own.from + before, own.to}, request->chunk_count, 0);
        size_t count = at.to - at.from;
        *out = (gw_action){.kind = GW_ACTION_COPY,
                           .src = gw_slot_at(GW_SPACE_IN, at.from - own.from, count),
                           .dst = gw_slot_at(GW_SPACE_OUT, at.from, count)};
        return;
    }
    gw_slot in = gw_slot_at(GW_SPACE_IN, 0, gw_plan_in_count(request));
    gw_slot dst = gw_slot_at(GW_SPACE_OUT, 0, gw_plan_out_count(request));
    *out = (gw_action){.kind = GW_ACTION_SHM,
                       .src = request->collective == GW_COLL_ALLGATHER ? dst : in,
                       .dst = dst,
                       .task = task_of(request->collective),
                       .lanes = request->topology.world,
                       .by_counts = request->counts && !parts_are_even(request),
                       .coll_root = request->root};
}

static gw_cost cost(const gw_plan_request *request) {
    uint64_t p = (uint64_t)request->topology.world, n = gw_plan_total(request);
    switch (request->collective) {
    case GW_COLL_ALLREDUCE: return (gw_cost){.coll_elements = 2 * p * n};
    case GW_COLL_REDUCE_SCATTER: return (gw_cost){.coll_elements = (p + 1) * n};
    case GW_COLL_ALLGATHER: return (gw_cost){.coll_elements = p * n};
    case GW_COLL_BROADCAST: return (gw_cost){.coll_elements = (p + 1) * n};
    default: return (gw_cost){0};
    }
}

const gw_plan_builder gw_plan_direct = {
    .technique = {.name = "direct", .about = "each rank reduces its slice from all others",
                  .params = GW_PARAMS(GW_PARAM_CHUNK)},
    .refuses = refuses,
    .lay_out = lay_out,
    .stream = stream,
    .action = step,
    .cost = cost,
    .preferred = true,
    .local = true,
    .fallback = &gw_plan_pairwise,
};
