/* pairwise.c - every rank exchanges messages with every other: each part of the data goes straight to its owner,
 * which folds all parts in rank order (the same bits as direct in shared memory, however the data is cut), and finished
 * parts go straight to all. Also the collectives that only move data, and flat reduce and broadcast.
 *
 * In place: a reduction reads a rank's own part only at the place where it writes the result. In an all-to-all a
 * message may arrive before the part of IN in its place has been sent. Unless IN and OUT are known to be apart, it
 * lands in WORK and is copied when that part has been sent.
 *
 * Cost of an all-reduce of n elements: 2 p (p-1) messages of n/p, two in a row; each rank sends 2 (p-1)/p n. */
#include "plan/build.h"

/* With more peers than this, messages become smaller, so that the memory of all landing windows does not grow with the
 * world. */
#define FULL_WINDOWS 16

/* Groups of streams, in this order. A group has a stream for each other rank that takes part: sends begin with the next
 * rank and receives with the one before, so that not all ranks begin with rank 0. */
enum group { SEND_PARTS, RECV_PARTS, LOCAL, SEND_RESULT, RECV_RESULT, GROUPS };

typedef struct shape {
    uint32_t first[GROUPS + 1]; /* stream numbers; group g is first[g] .. first[g+1]-1 */
    uint32_t window;            /* landing slots for each peer */
    uint64_t slot;              /* elements of a message at most */
} shape;

static const char *refuses(const gw_plan_request *request) {
    bool supported = request->collective <= GW_COLL_ALLTOALL;
    return supported ? NULL : "supports only collectives that move data between all ranks";
}

static bool has_root(gw_collective collective) {
    return collective == GW_COLL_REDUCE || collective == GW_COLL_BROADCAST || collective == GW_COLL_GATHER ||
           collective == GW_COLL_SCATTER;
}

static bool reduces(gw_collective collective) {
    return collective == GW_COLL_ALLREDUCE || collective == GW_COLL_REDUCE_SCATTER || collective == GW_COLL_REDUCE;
}

/* The part of the large buffer that a rank owns. */
static gw_range part_of(const gw_plan_request *request, int rank) {
    switch (request->collective) {
    case GW_COLL_ALLREDUCE:
        return gw_range_part((gw_range){0, request->count}, (uint64_t)request->topology.world, (uint64_t)rank);
    case GW_COLL_REDUCE: return (gw_range){0, rank == request->root ? request->count : 0};
    case GW_COLL_BROADCAST: return (gw_range){0, request->count};
    default: return gw_plan_part(request, rank);
    }
}

static size_t part_max(const gw_plan_request *request) {
    if (request->collective == GW_COLL_ALLREDUCE) return gw_ceil_div(request->count, (size_t)request->topology.world);
    return gw_plan_part_max(request);
}

static bool uses_windows(const gw_plan_request *request) {
    return reduces(request->collective) || (request->collective == GW_COLL_ALLTOALL && !request->apart);
}

/* Both sides of a message must cut alike, so this may not depend on the rank nor on `apart`. */
static size_t message_max(const gw_plan_request *request) {
    size_t others = (size_t)request->topology.world - 1, chunk = request->chunk_count;
    if (others > FULL_WINDOWS && (reduces(request->collective) || request->collective == GW_COLL_ALLTOALL)) {
        size_t fair = chunk / others * FULL_WINDOWS + chunk % others * FULL_WINDOWS / others;
        chunk = fair ? fair : 1;
    }
    return chunk;
}

static uint64_t messages_of(const gw_plan_request *request, size_t max, int rank) {
    gw_range part = part_of(request, rank);
    return gw_ceil_div(part.to - part.from, max);
}

/* How many streams a group has on this rank. */
static uint32_t group_streams(const gw_plan_request *request, enum group group) {
    uint32_t others = (uint32_t)request->topology.world - 1;
    bool root = request->rank == request->root;
    switch (request->collective) {
    case GW_COLL_ALLREDUCE: return group == LOCAL ? 1 : others;
    case GW_COLL_REDUCE_SCATTER: return group == LOCAL ? 1 : group < LOCAL ? others : 0;
    case GW_COLL_ALLGATHER: return group == LOCAL ? 1 : group > LOCAL ? others : 0;
    case GW_COLL_REDUCE:
    case GW_COLL_GATHER:
        return group == SEND_PARTS ? !root : group == RECV_PARTS ? (root ? others : 0) : group == LOCAL && root;
    case GW_COLL_BROADCAST:
    case GW_COLL_SCATTER:
        return group == SEND_RESULT ? (root ? others : 0) : group == RECV_RESULT ? !root : group == LOCAL && root;
    default: /* all-to-all: local streams copy own part and, in place, each peer's */
        return group < LOCAL ? others : group == LOCAL ? 1 + (request->apart ? 0 : others) : 0;
    }
}

static void lay_out(gw_plan *plan) {
    const gw_plan_request *request = &plan->request;
    shape s = {.slot = gw_min_size(message_max(request), part_max(request)), .window = (uint32_t)request->pipeline};
    for (int group = 0; group < GROUPS; group++)
        s.first[group + 1] = s.first[group] + group_streams(request, (enum group)group);
    bool lands = s.first[RECV_PARTS + 1] > s.first[RECV_PARTS];
    plan->streams = s.first[GROUPS];
    if (uses_windows(request) && lands)
        plan->work_count = (size_t)(request->topology.world - 1) * s.window * (size_t)s.slot;
    GW_PLAN_KEEP(plan, &s);
}

static enum group group_of(const shape *s, uint32_t index) {
    int group = 0;
    while (index >= s->first[group + 1]) group++;
    return (enum group)group;
}

/* The peer of a stream. For a local stream of an all-to-all: the rank whose messages it copies, or this rank. */
static int peer_of(const gw_plan_request *request, const shape *s, uint32_t index) {
    int world = request->topology.world, rank = request->rank;
    enum group group = group_of(s, index);
    int member = (int)(index - s->first[group]);
    if (group == LOCAL) return (rank - member + world) % world;
    bool sends = group == SEND_PARTS || group == SEND_RESULT;
    if (has_root(request->collective) && rank != request->root) return request->root;
    return sends ? (rank + 1 + member) % world : (rank - 1 - member + world) % world;
}

/* The rank that owns the part which the messages of a stream hold. */
static int owner_of(const gw_plan_request *request, const shape *s, uint32_t index) {
    int peer = peer_of(request, s, index), rank = request->rank;
    switch (group_of(s, index)) {
    case SEND_PARTS: return request->collective == GW_COLL_GATHER ? rank : peer;
    case RECV_PARTS: return request->collective == GW_COLL_GATHER ? peer : rank;
    case LOCAL: return reduces(request->collective) ? rank : peer;
    case SEND_RESULT: return request->collective == GW_COLL_SCATTER ? peer : rank;
    default: return request->collective == GW_COLL_SCATTER ? rank : peer;
    }
}

static void stream(const gw_plan *plan, uint32_t index, gw_stream *out) {
    shape s;
    GW_PLAN_RECALL(plan, &s);
    const gw_plan_request *request = &plan->request;
    enum group group = group_of(&s, index);
    uint64_t steps = messages_of(request, message_max(request), owner_of(request, &s, index));
    *out = (gw_stream){.kind = GW_STREAM_LOCAL, .peer = -1, .actions = steps};
    if (group == LOCAL) return;
    out->kind = group == SEND_PARTS || group == SEND_RESULT ? GW_STREAM_SEND : GW_STREAM_RECV;
    out->peer = peer_of(request, &s, index);
    out->channel = group > LOCAL;
}

/* The window slot of message i of a peer. */
static gw_slot window_slot(const gw_plan_request *request, const shape *s, int peer, uint64_t i, size_t count) {
    uint64_t others_before = (uint64_t)(peer < request->rank ? peer : peer - 1);
    return gw_slot_at(GW_SPACE_WORK, (size_t)((others_before * s->window + i % s->window) * s->slot), count);
}

/* Converts a range of the large buffer to a slot of IN or OUT, which in some collectives holds only this rank's
 * part. */
static gw_slot large(const gw_plan_request *request, gw_space space, gw_range at) {
    bool small = space == GW_SPACE_IN
                     ? request->collective == GW_COLL_ALLGATHER || request->collective == GW_COLL_GATHER
                     : request->collective == GW_COLL_REDUCE_SCATTER || request->collective == GW_COLL_SCATTER;
    return gw_slot_at(space, small ? at.from - part_of(request, request->rank).from : at.from, at.to - at.from);
}

static void recv_part(const gw_plan *plan, const shape *s, uint32_t index, uint64_t i, gw_range at, gw_action *out) {
    const gw_plan_request *request = &plan->request;
    *out = (gw_action){.kind = GW_ACTION_RECV};
    int peer = peer_of(request, s, index);
    if (!uses_windows(request)) {
        gw_range theirs = at;
        if (request->collective == GW_COLL_ALLTOALL) {
            size_t offset = part_of(request, peer).from - part_of(request, request->rank).from; /* may wrap */
            theirs = (gw_range){at.from + offset, at.to + offset};
        }
        out->land = out->dst = gw_slot_at(GW_SPACE_OUT, theirs.from, theirs.to - theirs.from);
        return;
    }
    out->land = out->dst = window_slot(request, s, peer, i, at.to - at.from);
    uint32_t consumer = s->first[LOCAL];
    if (request->collective == GW_COLL_ALLTOALL) consumer += 1 + (index - s->first[RECV_PARTS]);
    if (i >= s->window) out->free[0] = gw_post_op(consumer, i - s->window + 1);
}

static void fold(const gw_plan *plan, const shape *s, uint64_t i, gw_range at, gw_action *out) {
    const gw_plan_request *request = &plan->request;
    *out = (gw_action){.kind = GW_ACTION_FOLD,
                       .src = large(request, GW_SPACE_IN, at),
                       .dst = large(request, GW_SPACE_OUT, at),
                       .finish = true,
                       .fold_base = (size_t)(i % s->window * s->slot),
                       .fold_stride = (size_t)(s->window * s->slot)};
    out->ready[0] = (gw_waits){s->first[RECV_PARTS], s->first[LOCAL] - s->first[RECV_PARTS], i + 1};
}

/* Copies the own part from IN to OUT. In an all-to-all in place, also copies a peer's message to OUT once the part that
 * it replaces has been sent. */
static void local(const gw_plan *plan, const shape *s, uint32_t index, uint64_t i, gw_range at, gw_action *out) {
    const gw_plan_request *request = &plan->request;
    if (reduces(request->collective)) {
        fold(plan, s, i, at, out);
        return;
    }
    uint32_t member = index - s->first[LOCAL];
    *out = (gw_action){
        .kind = GW_ACTION_COPY, .src = large(request, GW_SPACE_IN, at), .dst = large(request, GW_SPACE_OUT, at)};
    if (member == 0) return;
    int peer = peer_of(request, s, index), world = request->topology.world;
    uint32_t to_peer = (uint32_t)((peer - request->rank - 1 + world) % world);
    out->src = window_slot(request, s, peer, i, at.to - at.from);
    out->ready[0] = gw_post_op(s->first[RECV_PARTS] + member - 1, i + 1);
    out->ready[1] = gw_post_op(s->first[SEND_PARTS] + to_peer, i + 1);
}

static void send_result(const gw_plan *plan, const shape *s, uint64_t i, gw_range at, gw_action *out) {
    bool reduced = plan->request.collective == GW_COLL_ALLREDUCE;
    *out = (gw_action){.kind = GW_ACTION_SEND, .src = large(&plan->request, reduced ? GW_SPACE_OUT : GW_SPACE_IN, at)};
    if (reduced) out->ready[0] = gw_post_op(s->first[LOCAL], i + 1);
}

static void step(const gw_plan *plan, uint32_t index, uint64_t i, gw_action *out) {
    shape s;
    GW_PLAN_RECALL(plan, &s);
    const gw_plan_request *request = &plan->request;
    gw_range at = gw_chunk_of(part_of(request, owner_of(request, &s, index)), message_max(request), i);
    switch (group_of(&s, index)) {
    case SEND_PARTS: *out = (gw_action){.kind = GW_ACTION_SEND, .src = large(request, GW_SPACE_IN, at)}; break;
    case RECV_PARTS: recv_part(plan, &s, index, i, at, out); break;
    case LOCAL: local(plan, &s, index, i, at, out); break;
    case SEND_RESULT: send_result(plan, &s, i, at, out); break;
    default: *out = (gw_action){.kind = GW_ACTION_RECV}; out->land = out->dst = large(request, GW_SPACE_OUT, at);
    }
}

static gw_cost cost(const gw_plan_request *request) {
    int world = request->topology.world;
    uint64_t others = (uint64_t)world - 1, n = gw_plan_total(request), all = 0, roots = 0;
    for (int rank = 0; rank < world; rank++) all += messages_of(request, message_max(request), rank);
    if (has_root(request->collective)) roots = messages_of(request, message_max(request), request->root);
    uint64_t once = n ? 1 : 0;
    switch (request->collective) {
    case GW_COLL_ALLREDUCE:
        return (gw_cost){.messages = 2 * others * all, .elements = 2 * others * n, .start_ups = 2 * once};
    case GW_COLL_REDUCE:
    case GW_COLL_BROADCAST:
        return (gw_cost){.messages = others * roots, .elements = others * n, .start_ups = once};
    case GW_COLL_GATHER:
    case GW_COLL_SCATTER:
        return (gw_cost){.messages = all - roots, .elements = n - (part_of(request, request->root).to -
                                                                   part_of(request, request->root).from),
                         .start_ups = once};
    default:
        return (gw_cost){.messages = others * all, .elements = others * n, .start_ups = once};
    }
}

static gw_cost_terms work(const gw_cost_inputs *s) {
    double others = s->ranks - 1, rounds = gw_cost_directions(s);
    double part = gw_cost_rooted(s) ? s->bytes : s->bytes / s->ranks;
    return (gw_cost_terms){.rounds = rounds, .bytes = rounds * others * part, .messages = rounds * others,
                     .reduced = others * part, .crowd = gw_cost_congestion(s, GW_CONGESTION_PAIRWISE), .preference = 3};
}

const gw_plan_builder gw_plan_pairwise = {
    .technique = {.name = "pairwise",
                  .about = "every part straight to its owner, summed in rank order, and straight back"},
    .refuses = refuses,
    .lay_out = lay_out,
    .stream = stream,
    .action = step,
    .cost = cost,
    .work = work,
    .symmetric = true,
    .small = &gw_plan_oneshot,
};
