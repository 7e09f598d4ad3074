/* oneshot.c - an all-reduce in one round: every rank sends all of its data to every other, and each folds all of it in
 * rank order (the same bits as direct and pairwise). For little data, where a round costs more than the bytes.
 *
 * In place: a chunk of IN is overwritten only after it has been sent to all others.
 *
 * Cost of n elements: p (p-1) messages of n, one in a row; each rank sends (p-1) n. */
#include "plan/build.h"

typedef struct shape {
    uint32_t others;       /* streams 0 .. others-1 send, others .. 2*others-1 receive, 2*others folds */
    uint32_t window;       /* landing slots for each peer */
    uint64_t chunks, slot; /* messages to each peer, and elements of one at most */
} shape;

static const char *refuses(const gw_plan_request *request) {
    return request->collective == GW_COLL_ALLREDUCE ? NULL : "supports only allreduce";
}

static void lay_out(gw_plan *plan) {
    const gw_plan_request *request = &plan->request;
    uint64_t chunks = gw_ceil_div(request->count, request->chunk_count);
    shape s = {.others = (uint32_t)request->topology.world - 1,
               .window = (uint32_t)gw_min_size((size_t)request->pipeline, (size_t)chunks),
               .chunks = chunks,
               .slot = gw_min_size(request->chunk_count, request->count)};
    plan->streams = 2 * s.others + 1;
    plan->work_count = s.others * s.window * (size_t)s.slot;
    GW_PLAN_KEEP(plan, &s);
}

/* Sends begin with the next rank and receives with the one before, so that not all ranks begin with rank 0. */
static void stream(const gw_plan *plan, uint32_t index, gw_stream *out) {
    shape s;
    GW_PLAN_RECALL(plan, &s);
    int world = plan->request.topology.world, rank = plan->request.rank;
    *out = (gw_stream){.kind = GW_STREAM_LOCAL, .peer = -1, .actions = s.chunks};
    if (index == 2 * s.others) return;
    bool sends = index < s.others;
    int distance = 1 + (int)(sends ? index : index - s.others);
    out->kind = sends ? GW_STREAM_SEND : GW_STREAM_RECV;
    out->peer = sends ? (rank + distance) % world : (rank - distance + world) % world;
}

static void recv_chunk(const gw_plan *plan, const shape *s, uint32_t index, uint64_t i, size_t count, gw_action *out) {
    gw_stream from;
    stream(plan, index, &from);
    uint64_t before = (uint64_t)(from.peer < plan->request.rank ? from.peer : from.peer - 1);
    *out = (gw_action){.kind = GW_ACTION_RECV};
    out->land = out->dst = gw_slot_at(GW_SPACE_WORK, (size_t)((before * s->window + i % s->window) * s->slot), count);
    if (i >= s->window) out->free[0] = gw_post_op(2 * s->others, i - s->window + 1);
}

static void fold(const gw_plan *plan, const shape *s, uint64_t i, gw_range at, gw_action *out) {
    *out = (gw_action){.kind = GW_ACTION_FOLD,
                       .src = gw_slot_at(GW_SPACE_IN, at.from, at.to - at.from),
                       .dst = gw_slot_at(GW_SPACE_OUT, at.from, at.to - at.from),
                       .finish = true,
                       .fold_base = (size_t)(i % s->window * s->slot),
                       .fold_stride = (size_t)(s->window * s->slot)};
    out->ready[0] = (gw_waits){s->others, s->others, i + 1};
    if (!plan->request.apart) out->ready[1] = (gw_waits){0, s->others, i + 1};
}

static void step(const gw_plan *plan, uint32_t index, uint64_t i, gw_action *out) {
    shape s;
    GW_PLAN_RECALL(plan, &s);
    gw_range at = gw_chunk_of((gw_range){0, plan->request.count}, plan->request.chunk_count, i);
    if (index == 2 * s.others) fold(plan, &s, i, at, out);
    else if (index >= s.others) recv_chunk(plan, &s, index, i, at.to - at.from, out);
    else
        *out = (gw_action){.kind = GW_ACTION_SEND, .src = gw_slot_at(GW_SPACE_IN, at.from, at.to - at.from)};
}

static gw_cost cost(const gw_plan_request *request) {
    uint64_t p = (uint64_t)request->topology.world, chunks = gw_ceil_div(request->count, request->chunk_count);
    return (gw_cost){.messages = p * (p - 1) * chunks, .elements = p * (p - 1) * request->count,
                     .start_ups = request->count ? 1 : 0};
}

static gw_cost_terms work(const gw_cost_inputs *s) {
    double others = s->ranks - 1;
    return (gw_cost_terms){.rounds = 1, .bytes = others * s->bytes, .messages = others, .reduced = others * s->bytes,
                     .crowd = gw_cost_congestion(s, GW_CONGESTION_PAIRWISE), .preference = 5};
}

const gw_plan_builder gw_plan_oneshot = {
    .technique = {.name = "oneshot",
                  .about = "all data straight to all ranks, summed in rank order: one round, for little data"},
    .refuses = refuses,
    .lay_out = lay_out,
    .stream = stream,
    .action = step,
    .cost = cost,
    .work = work,
    .symmetric = true,
};
