/* alltoallv.c - uneven all-to-all: every rank sends each other rank a part of its own length, straight to it. IN and
 * OUT do not overlap. An empty part is still one message, so that two ranks that disagree about its length find out.
 *
 * Each rank knows only what it sends and receives itself, so the two sides of a part may disagree; the count of the
 * stream goes with each message.
 *
 * Cost: for each of p (p-1) parts of n elements ceil(n / chunk) messages, at least one; all at the same time. */
#include "plan/build.h"

static const char *refuses(const gw_plan_request *request) {
    return request->collective == GW_COLL_ALLTOALLV ? NULL : "supports only alltoallv";
}

static uint32_t others(const gw_plan_request *request) { return (uint32_t)request->topology.world - 1; }

/* Streams: sends, beginning with the next rank; receives, beginning with the rank before; the copy of the own part. */
static void lay_out(gw_plan *plan) { plan->streams = 2 * others(&plan->request) + 1; }

static int peer_of(const gw_plan_request *request, uint32_t index) {
    int world = request->topology.world, n = (int)others(request), i = (int)index;
    if (i < n) return (request->rank + 1 + i) % world;
    return i < 2 * n ? (request->rank - 1 - (i - n) + world) % world : request->rank;
}

static gw_range sent(const gw_plan_request *request, int peer) {
    size_t at = gw_alltoallv_array(request, GW_ALLTOALLV_IN_OFFSETS)[peer];
    return (gw_range){at, at + gw_alltoallv_array(request, GW_ALLTOALLV_IN_COUNTS)[peer]};
}

static gw_range received(const gw_plan_request *request, int peer) {
    size_t at = gw_alltoallv_array(request, GW_ALLTOALLV_OUT_OFFSETS)[peer];
    return (gw_range){at, at + gw_alltoallv_array(request, GW_ALLTOALLV_OUT_COUNTS)[peer]};
}

static bool is_receive(const gw_plan_request *request, uint32_t index) {
    return index >= others(request) && index < 2 * others(request);
}

static gw_range range_of(const gw_plan_request *request, uint32_t index) {
    int peer = peer_of(request, index);
    return is_receive(request, index) ? received(request, peer) : sent(request, peer);
}

static uint64_t messages(const gw_plan_request *request, size_t count) {
    return count ? gw_ceil_div(count, request->chunk_count) : 1;
}

static void stream(const gw_plan *plan, uint32_t index, gw_stream *out) {
    const gw_plan_request *request = &plan->request;
    gw_range range = range_of(request, index);
    size_t count = range.to - range.from;
    *out = (gw_stream){.kind = GW_STREAM_SEND, .peer = peer_of(request, index), .actions = messages(request, count),
                       .count = count};
    if (is_receive(request, index)) out->kind = GW_STREAM_RECV;
    if (index == 2 * others(request)) *out = (gw_stream){.kind = GW_STREAM_LOCAL, .peer = -1, .actions = count > 0};
}

static void step(const gw_plan *plan, uint32_t index, uint64_t i, gw_action *out) {
    const gw_plan_request *request = &plan->request;
    gw_range range = range_of(request, index);
    if (index == 2 * others(request)) {
        gw_range into = received(request, request->rank);
        *out = (gw_action){.kind = GW_ACTION_COPY, .src = gw_slot_at(GW_SPACE_IN, range.from, range.to - range.from),
                           .dst = gw_slot_at(GW_SPACE_OUT, into.from, into.to - into.from)};
        return;
    }
    gw_range at = gw_chunk_of(range, request->chunk_count, i);
    gw_slot slot = gw_slot_at(is_receive(request, index) ? GW_SPACE_OUT : GW_SPACE_IN, at.from, at.to - at.from);
    if (is_receive(request, index)) *out = (gw_action){.kind = GW_ACTION_RECV, .dst = slot, .land = slot};
    else *out = (gw_action){.kind = GW_ACTION_SEND, .src = slot};
}

/* Of this rank's own parts, times the number of ranks: no rank knows those of the others. */
static gw_cost cost(const gw_plan_request *request) {
    uint64_t world = (uint64_t)request->topology.world;
    gw_cost all = {.start_ups = 1};
    for (uint32_t i = 0; i < others(request); i++) {
        gw_range part = sent(request, peer_of(request, i));
        all.messages += world * messages(request, part.to - part.from);
        all.elements += world * (part.to - part.from);
    }
    return all;
}

const gw_plan_builder gw_plan_alltoallv = {
    .technique = {.name = "alltoallv", .about = "every part straight to its receiver"},
    .refuses = refuses,
    .lay_out = lay_out,
    .stream = stream,
    .action = step,
    .cost = cost,
    .preferred = true,
};
