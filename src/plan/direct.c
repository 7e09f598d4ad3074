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
    if (request->collective > GW_COLL_ALLTOALL && request->collective != GW_COLL_BARRIER)
        return "supports only collectives with the same counts on all ranks";
    if (!request->topology.coll) return "needs ranks that share memory";
    return gw_topology_hosts(&request->topology) > 1 ? "needs all ranks on one host" : NULL;
}

static void lay_out(gw_plan *plan) { plan->streams = 1; }

static void stream(const gw_plan *plan, uint32_t index, gw_stream *out) {
    (void)plan, (void)index;
    *out = (gw_stream){.kind = GW_STREAM_LOCAL, .peer = -1, .actions = 1};
}

static gw_shm_task task_of(gw_collective collective) {
    switch (collective) {
    case GW_COLL_ALLREDUCE: return GW_SHM_TASK_ALLREDUCE;
    case GW_COLL_REDUCE_SCATTER: return GW_SHM_TASK_REDUCE_SCATTER;
    case GW_COLL_ALLGATHER: return GW_SHM_TASK_ALLGATHER;
    case GW_COLL_BROADCAST: return GW_SHM_TASK_BROADCAST;
    case GW_COLL_REDUCE: return GW_SHM_TASK_REDUCE;
    case GW_COLL_GATHER: return GW_SHM_TASK_GATHER;
    case GW_COLL_SCATTER: return GW_SHM_TASK_SCATTER;
    case GW_COLL_ALLTOALL: return GW_SHM_TASK_ALLTOALL;
    default: return GW_SHM_TASK_BARRIER;
    }
}

/* The whole of a scatter's input, and of a gather's and a reduce's output, also on ranks that have none: its length is
 * that of the task. */
static gw_slot slot_of(const gw_plan_request *request, gw_space space) {
    bool scattered = request->collective == GW_COLL_SCATTER && space == GW_SPACE_IN;
    bool to_root = request->collective == GW_COLL_GATHER || request->collective == GW_COLL_REDUCE;
    if (scattered || (to_root && space == GW_SPACE_OUT)) return gw_slot_at(space, 0, gw_plan_total(request));
    return gw_slot_at(space, 0, space == GW_SPACE_IN ? gw_plan_in_count(request) : gw_plan_out_count(request));
}

static void step(const gw_plan *plan, uint32_t index, uint64_t i, gw_action *out) {
    (void)index, (void)i;
    const gw_plan_request *request = &plan->request;
    *out = (gw_action){.kind = GW_ACTION_SHM,
                       .src = slot_of(request, GW_SPACE_IN),
                       .dst = slot_of(request, GW_SPACE_OUT),
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
    case GW_COLL_ALLGATHER: return (gw_cost){.coll_elements = (p + 1) * n};
    case GW_COLL_BROADCAST:
    case GW_COLL_REDUCE: return (gw_cost){.coll_elements = (p + 1) * n};
    case GW_COLL_GATHER:
    case GW_COLL_SCATTER: return (gw_cost){.coll_elements = 2 * n};
    case GW_COLL_ALLTOALL: return (gw_cost){.coll_elements = 2 * p * n};
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
