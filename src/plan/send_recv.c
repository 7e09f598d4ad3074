/* send_recv.c - point to point: one stream of chunks from one rank to another; the root of the request is the peer. An
 * empty message is still one message, so that both sides synchronize.
 *
 * Cost: ceil(n / chunk) messages, at least one. */
#include "plan/build.h"

static const char *refuses(const gw_plan_request *request) {
    bool supported = request->collective == GW_COLL_SEND || request->collective == GW_COLL_RECV;
    return supported ? NULL : "supports only send and recv";
}

static uint64_t messages(const gw_plan_request *request) {
    return request->count ? gw_ceil_div(request->count, request->chunk_count) : 1;
}

static void lay_out(gw_plan *plan) { plan->streams = 1; }

static void stream(const gw_plan *plan, uint32_t index, gw_stream *out) {
    (void)index;
    *out = (gw_stream){.kind = plan->request.collective == GW_COLL_SEND ? GW_STREAM_SEND : GW_STREAM_RECV,
                       .peer = plan->request.root,
                       .actions = messages(&plan->request)};
}

static void step(const gw_plan *plan, uint32_t index, uint64_t i, gw_action *out) {
    (void)index;
    gw_range at = gw_chunk_of((gw_range){0, plan->request.count}, plan->request.chunk_count, i);
    size_t count = at.to - at.from;
    if (plan->request.collective == GW_COLL_SEND) {
        *out = (gw_action){.kind = GW_ACTION_SEND, .src = gw_slot_at(GW_SPACE_IN, at.from, count)};
    } else {
        gw_slot slot = gw_slot_at(GW_SPACE_OUT, at.from, count);
        *out = (gw_action){.kind = GW_ACTION_RECV, .dst = slot, .land = slot};
    }
}

static gw_cost cost(const gw_plan_request *request) {
    return (gw_cost){.messages = messages(request), .elements = request->count, .start_ups = 1};
}

const gw_plan_builder gw_plan_send_recv = {
    .technique = {.name = "pair", .about = "point to point, in chunks"},
    .refuses = refuses,
    .lay_out = lay_out,
    .stream = stream,
    .action = step,
    .cost = cost,
    .preferred = true,
};
