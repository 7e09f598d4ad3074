/* tree.c - two binary trees (Sanders, Speck and Träff 2009): each moves half of the data, and a rank that has
 * children in one is a leaf in the other, so that all links are busy both ways.
 *
 * The root ("head"; rank 0 for an all-reduce) feeds both trees, which span the other p-1 ranks in order: label x in
 * 1..p-1 has as many levels below it as x has trailing zero bits. The second tree shifts the labels by one, which turns
 * odd ones (leaves) into even ones. Data that fits one chunk goes through the first tree only.
 *
 * A rank computes (own op first child) op second child, the same in every run.
 *
 * Cost of an all-reduce: each tree 2 (p-1) messages for each chunk, 2 (1 + floor(log2(p-1))) in a row. */
#include "plan/build.h"

enum role { UP_FIRST, UP_SECOND, UP_SEND, DOWN_RECV, DOWN_FIRST, DOWN_SECOND, ROLES };
#define COPY_STREAM (2 * ROLES)
#define NOBODY (-1)

typedef struct node {
    int parent, child[2]; /* ranks */
    bool head;
} node;

static const char *refuses(const gw_plan_request *request) {
    bool supported = request->collective == GW_COLL_ALLREDUCE || request->collective == GW_COLL_REDUCE ||
                     request->collective == GW_COLL_BROADCAST;
    return supported ? NULL : "supports only allreduce, reduce and broadcast";
}

static int head_of(const gw_plan_request *request) {
    return request->collective == GW_COLL_ALLREDUCE ? 0 : request->root;
}

static int label_of(const gw_plan_request *request, int tree, int rank) {
    int world = request->topology.world, place = (rank - head_of(request) - 1 + world) % world;
    return tree == 0 ? place + 1 : (place + 1) % (world - 1) + 1;
}

static int rank_of(const gw_plan_request *request, int tree, int label) {
    int world = request->topology.world;
    int place = tree == 0 ? label - 1 : (label - 2 + world - 1) % (world - 1);
    return (int)(((int64_t)place + head_of(request) + 1) % world);
}

static int root_label(int labels) { return 1 << (31 - __builtin_clz((unsigned)labels)); }

/* Labels beyond the last one are skipped: their left subtree takes their place. */
static int parent_label(int label, int labels) {
    if (label == root_label(labels)) return 0;
    do {
        int low = label & -label;
        label = (label & ~low) | low << 1;
    } while (label > labels);
    return label;
}

static int child_label(int label, int labels, int which) {
    int half = (label & -label) / 2;
    if (half == 0) return 0;
    if (which == 0) return label - half;
    int child = label + half;
    while (child > labels && half > 1) child -= half /= 2;
    return child <= labels ? child : 0;
}

static node node_of(const gw_plan_request *request, int tree) {
    int labels = request->topology.world - 1;
    if (request->rank == head_of(request))
        return (node){NOBODY, {rank_of(request, tree, root_label(labels)), NOBODY}, true};
    int label = label_of(request, tree, request->rank), parent = parent_label(label, labels);
    node n = {.parent = parent ? rank_of(request, tree, parent) : head_of(request)};
    for (int which = 0; which < 2; which++) {
        int child = child_label(label, labels, which);
        n.child[which] = child ? rank_of(request, tree, child) : NOBODY;
    }
    return n;
}

static gw_range half_of(const gw_plan_request *request, int tree) {
    size_t count = request->count;
    if (count <= request->chunk_count) return tree == 0 ? (gw_range){0, count} : (gw_range){0, 0};
    size_t middle = count - count / 2;
    return tree == 0 ? (gw_range){0, middle} : (gw_range){middle, count};
}

static uint64_t chunks_of(const gw_plan_request *request, int tree) {
    gw_range half = half_of(request, tree);
    return gw_ceil_div(half.to - half.from, request->chunk_count);
}

static size_t slot_count(const gw_plan_request *request) {
    gw_range half = half_of(request, 0);
    return gw_min_size(request->chunk_count, half.to - half.from);
}

static void lay_out(gw_plan *plan) {
    const gw_plan_request *request = &plan->request;
    plan->streams = COPY_STREAM + 1;
    if (request->collective == GW_COLL_BROADCAST) return;
    bool receives = false;
    for (int tree = 0; tree < 2; tree++) receives |= node_of(request, tree).child[0] != NOBODY;
    plan->work_count = receives ? 4 * (size_t)request->pipeline * slot_count(request) : 0;
}

static int peer_of(const node *n, enum role role) {
    switch (role) {
    case UP_FIRST:
    case DOWN_FIRST: return n->child[0];
    case UP_SECOND:
    case DOWN_SECOND: return n->child[1];
    default: return n->parent;
    }
}

static void stream(const gw_plan *plan, uint32_t index, gw_stream *out) {
    const gw_plan_request *request = &plan->request;
    *out = (gw_stream){.kind = GW_STREAM_LOCAL, .peer = -1};
    if (index == COPY_STREAM) {
        bool copies = request->collective == GW_COLL_BROADCAST && request->rank == request->root;
        out->actions = copies ? gw_ceil_div(request->count, request->chunk_count) : 0;
        return;
    }
    int tree = (int)index / ROLES;
    enum role role = (enum role)(index % ROLES);
    node n = node_of(request, tree);
    bool up = role <= UP_SEND;
    int peer = peer_of(&n, role);
    if (peer == NOBODY || (up ? request->collective == GW_COLL_BROADCAST : request->collective == GW_COLL_REDUCE))
        return;
    *out = (gw_stream){.kind = role == UP_SEND || role >= DOWN_FIRST ? GW_STREAM_SEND : GW_STREAM_RECV,
                       .peer = peer,
                       .channel = (uint32_t)(2 * tree + (up ? 0 : 1)),
                       .actions = chunks_of(request, tree)};
}

static gw_slot window_slot(const gw_plan *plan, int tree, int which, uint64_t i, size_t count) {
    uint64_t depth = (uint64_t)plan->request.pipeline;
    uint64_t slot = (uint64_t)(2 * tree + which) * depth + i % depth;
    return gw_slot_at(GW_SPACE_WORK, (size_t)slot * slot_count(&plan->request), count);
}

static bool is_leaf(const gw_plan_request *request, int tree, int rank) {
    return rank != head_of(request) && label_of(request, tree, rank) % 2 == 1;
}

/* A slot is free when its content has been used: by the second child's sum, the message up, or the result. */
static gw_waits slot_free(const gw_plan *plan, const node *n, int tree, int which, uint64_t i) {
    uint64_t depth = (uint64_t)plan->request.pipeline;
    if (i < depth) return (gw_waits){0};
    enum role user = n->head ? UP_FIRST : which == 0 && n->child[1] != NOBODY ? UP_SECOND : UP_SEND;
    return gw_post_op((uint32_t)(tree * ROLES + user), i - depth + 1);
}

static void up_recv(const gw_plan *plan, const node *n, int tree, int which, uint64_t i, gw_range at, gw_action *out) {
    const gw_plan_request *request = &plan->request;
    size_t count = at.to - at.from;
    gw_slot slot = window_slot(plan, tree, which, i, count);
    *out = (gw_action){.kind = GW_ACTION_RECV_REDUCE,
                       .src = gw_slot_at(GW_SPACE_IN, at.from, count),
                       .dst = n->head ? gw_slot_at(GW_SPACE_OUT, at.from, count) : slot,
                       .land = slot,
                       .wide = !is_leaf(request, tree, n->child[which]),
                       .finish = n->head};
    out->free[0] = slot_free(plan, n, tree, which, i);
    if (which == 1) {
        out->src = window_slot(plan, tree, 0, i, count);
        out->src_wide = true;
        out->ready[0] = gw_post_op((uint32_t)(tree * ROLES + UP_FIRST), i + 1);
    }
}

static void up_send(const gw_plan *plan, const node *n, int tree, uint64_t i, gw_range at, gw_action *out) {
    *out = (gw_action){.kind = GW_ACTION_SEND, .src = gw_slot_at(GW_SPACE_IN, at.from, at.to - at.from)};
    if (n->child[0] == NOBODY) return;
    int last = n->child[1] != NOBODY;
    out->src = window_slot(plan, tree, last, i, at.to - at.from);
    out->wide = true;
    out->ready[0] = gw_post_op((uint32_t)(tree * ROLES + (last ? UP_SECOND : UP_FIRST)), i + 1);
}

static void down_send(const gw_plan *plan, const node *n, int tree, uint64_t i, gw_range at, gw_action *out) {
    bool from_in = n->head && plan->request.collective == GW_COLL_BROADCAST;
    *out = (gw_action){.kind = GW_ACTION_SEND,
                       .src = gw_slot_at(from_in ? GW_SPACE_IN : GW_SPACE_OUT, at.from, at.to - at.from)};
    if (!from_in) out->ready[0] = gw_post_op((uint32_t)(tree * ROLES + (n->head ? UP_FIRST : DOWN_RECV)), i + 1);
}

static void step(const gw_plan *plan, uint32_t index, uint64_t i, gw_action *out) {
    const gw_plan_request *request = &plan->request;
    bool copies = index == COPY_STREAM;
    int tree = (int)index / ROLES;
    gw_range whole = copies ? (gw_range){0, request->count} : half_of(request, tree);
    gw_range at = gw_chunk_of(whole, request->chunk_count, i);
    gw_slot result = gw_slot_at(GW_SPACE_OUT, at.from, at.to - at.from);
    if (copies) {
        gw_slot in = gw_slot_at(GW_SPACE_IN, at.from, at.to - at.from);
        *out = (gw_action){.kind = GW_ACTION_COPY, .src = in, .dst = result};
        return;
    }
    node n = node_of(request, tree);
    switch ((enum role)(index % ROLES)) {
    case UP_FIRST: up_recv(plan, &n, tree, 0, i, at, out); break;
    case UP_SECOND: up_recv(plan, &n, tree, 1, i, at, out); break;
    case UP_SEND: up_send(plan, &n, tree, i, at, out); break;
    case DOWN_RECV: *out = (gw_action){.kind = GW_ACTION_RECV, .dst = result, .land = result}; break;
    default: down_send(plan, &n, tree, i, at, out);
    }
}

static gw_cost cost(const gw_plan_request *request) {
    uint64_t edges = (uint64_t)request->topology.world - 1, leaves = (edges + 1) / 2, n = request->count;
    bool up = request->collective != GW_COLL_BROADCAST, down = request->collective != GW_COLL_REDUCE;
    uint64_t phases = (uint64_t)up + (uint64_t)down, chunks = chunks_of(request, 0) + chunks_of(request, 1);
    uint64_t depth = 1 + (uint64_t)__builtin_ctz((unsigned)root_label((int)edges));
    return (gw_cost){.messages = phases * edges * chunks,
                     .elements = (up ? leaves * n : 0) + (down ? edges * n : 0),
                     .wide_elements = up ? (edges - leaves) * n : 0,
                     .start_ups = n ? phases * depth : 0};
}

/* The first chunk costs a round and all its bytes at each level; the next chunks follow in a pipeline. A rank handles
 * few messages on average, but between hosts each message waits for the one before it. */
static gw_cost_terms work(const gw_cost_inputs *s) {
    double ways = gw_cost_directions(s), edges = s->ranks - 1, depth = 1 + gw_floor_log2(s->ranks - 1);
    double chunk = s->bytes < GW_COST_CHUNK_BYTES ? s->bytes : GW_COST_CHUNK_BYTES;
    return (gw_cost_terms){.rounds = ways * depth,
                           .bytes = ways * (depth * chunk + s->bytes - chunk),
                           .messages = ways * (s->hosts > 1 ? 1 : edges / s->ranks),
                           .reduced = 2 * s->bytes,
                           .crowd = s->per_host,
                           .preference = gw_cost_rooted(s) ? 1 : 6};
}

const gw_plan_builder gw_plan_tree = {
    .technique = {.name = "tree", .about = "double binary tree, few start-ups at any size",
                  .params = GW_PARAMS(GW_PARAM_CHUNK)},
    .refuses = refuses,
    .lay_out = lay_out,
    .stream = stream,
    .action = step,
    .cost = cost,
    .work = work,
    .rooted = true,
};
