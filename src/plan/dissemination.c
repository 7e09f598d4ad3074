/* dissemination.c - the dissemination barrier (Hensgen, Finkel and Manber 1988): in round k every rank signals the rank
 * 2^k after it and waits for the one 2^k before it. After ceil(log2 p) rounds it has heard from all, directly or
 * through others.
 *
 * Cost: p * ceil(log2 p) empty messages, ceil(log2 p) in a row. */
#include "plan/build.h"

static const char *refuses(const gw_plan_request *request) {
    return request->collective == GW_COLL_BARRIER ? NULL : "supports only barrier";
}

static uint32_t rounds(int world) {
    uint32_t k = 0;
    while ((int64_t)1 << k < world) k++;
    return k;
}

static void lay_out(gw_plan *plan) { plan->streams = 2 * rounds(plan->request.topology.world); }

/* Streams: 2k sends in round k, 2k + 1 receives. */
static void stream(const gw_plan *plan, uint32_t index, gw_stream *out) {
    int world = plan->request.topology.world, hop = 1 << index / 2, rank = plan->request.rank;
    bool sends = index % 2 == 0;
    *out = (gw_stream){.kind = sends ? GW_STREAM_SEND : GW_STREAM_RECV,
                       .peer = (int)(((int64_t)rank + (sends ? hop : world - hop)) % world),
                       .channel = index / 2,
                       .actions = 1};
}

/* A round completes only after the rounds before it, so one wait covers all of them. */
static void step(const gw_plan *plan, uint32_t index, uint64_t i, gw_action *out) {
    (void)plan, (void)i;
    *out = (gw_action){.kind = index % 2 == 0 ? GW_ACTION_SEND : GW_ACTION_RECV};
    if (index >= 2) out->ready[0] = gw_post_op((index | 1) - 2, 1);
}

static gw_cost cost(const gw_plan_request *request) {
    uint64_t k = rounds(request->topology.world);
    return (gw_cost){.messages = k * (uint64_t)request->topology.world, .start_ups = k};
}

const gw_plan_builder gw_plan_dissemination = {
    .technique = {.name = "dissemination", .about = "barrier in log2 p rounds of empty messages"},
    .refuses = refuses,
    .lay_out = lay_out,
    .stream = stream,
    .action = step,
    .cost = cost,
    .preferred = true,
};
