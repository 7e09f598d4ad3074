/* hierarchical.c - an all-reduce in three phases: ranks of a host reduce to the owners of slices, the owners of one
 * slice on all hosts run a ring (a "lane"), and the results go back to all ranks of each host. Hosts may have different
 * numbers of ranks; there are as many lanes as the smallest host has ranks, and local rank l < lanes owns slice l of
 * every window.
 *
 * Inside a host: by shared memory where the ranks have it (SHM steps, rank order), else by messages: the owner adds the
 * chunks of the other ranks to its own in rank order as they arrive. Partial sums stay in the accumulator type ("wide")
 * until the last hop, so results are rounded once. The phases of a window follow each other chunk by chunk (by
 * messages) or window by window (SHM steps); with SHM steps the first phase of the next window runs before the last
 * phase of this one, so memory and network are both busy.
 *
 * In place: every element of IN is read once on each rank, and its result is written only after that.
 *
 * Cost of an all-reduce of n elements over h hosts of m ranks: between hosts h * 2 (h-1)/h n in 2 (h-1) rounds; by
 * messages inside hosts 2 (m-1) n for each host and two rounds more (fewer where hosts have one rank only). */
#include "plan/ring_walk.h"

/* Streams: four of the ring and one of SHM steps. If ranks of a host use messages, each group has one stream per peer:
 * chunks to the owners of lanes, chunks from the other ranks, results to the others, results from the owners. */
enum group { TO_OWNERS, FROM_OTHERS, TO_OTHERS, FROM_OWNERS, GROUPS };
#define COLL_STREAM 4
#define FIRST_LOCAL 5

typedef struct shape {
    gw_ring_walk ring;
    uint16_t lanes, local, locals; /* number of lanes; own rank in the host; ranks in the host */
    uint16_t first[GROUPS + 1];    /* stream numbers of the groups */
    bool coll, previous_wide;      /* SHM steps are used; the previous host sends a partial sum first */
    int next, previous;            /* ranks of this lane on the neighbouring hosts */
} shape;

static const char *refuses(const gw_plan_request *request) {
    int least, most;
    if (request->collective != GW_COLL_ALLREDUCE) return "supports only allreduce";
    gw_topology_local_sizes(&request->topology, &least, &most);
    return most > 8192 ? "supports at most 8192 ranks on a host" : NULL;
}

static int lanes_of(const gw_topology *topology) {
    int lanes, most;
    gw_topology_local_sizes(topology, &lanes, &most);
    return lanes;
}

static gw_pipeline_cut cut_of(const gw_plan_request *request) {
    uint64_t ways = (uint64_t)lanes_of(&request->topology) * (uint64_t)gw_topology_hosts(&request->topology);
    return gw_pipeline_cut_make(request->count, ways, request->chunk_count, request->pipeline);
}

static bool is_lane(const shape *s) { return s->local < s->lanes; }
/* One host with shared memory does everything in one step. */
static bool is_one_coll(const shape *s) { return s->coll && s->ring.size == 1; }
static bool by_messages(const shape *s) { return !s->coll && s->locals > 1; }
static uint64_t coll_buffers(const shape *s) { return s->ring.cut.windows > 1 ? 2 : 1; }

static size_t slice_max(const shape *s, int depth) {
    uint64_t columns = gw_min_size((size_t)s->ring.cut.columns, (size_t)depth);
    return (size_t)(s->ring.size * columns) * s->ring.cut.chunk;
}

/* After the slots of the ring in WORK: two buffers of partial sums of SHM steps, or a window of slots for each local
 * peer. */
static size_t work_of(const shape *s, int depth) {
    size_t ring = s->ring.slots * s->ring.cut.chunk;
    if (!is_lane(s) || is_one_coll(s)) return 0;
    if (s->coll) return ring + (size_t)coll_buffers(s) * slice_max(s, depth);
    return ring + (size_t)(s->locals - 1) * 2 * (size_t)depth * s->ring.cut.chunk;
}

static void count_local_streams(shape *s) {
    bool messages = by_messages(s), lane = is_lane(s);
    uint16_t others = (uint16_t)(s->locals - 1), owners = (uint16_t)(s->lanes - lane);
    const uint16_t sizes[GROUPS] = {owners, lane ? others : 0, lane ? others : 0, owners};
    s->first[0] = FIRST_LOCAL;
    for (int group = 0; group < GROUPS; group++)
        s->first[group + 1] = (uint16_t)(s->first[group] + (messages ? sizes[group] : 0));
}

static void lay_out(gw_plan *plan) {
    const gw_plan_request *request = &plan->request;
    const gw_topology *topology = &request->topology;
    int host = gw_topology_host(topology, request->rank), hosts = gw_topology_hosts(topology);
    shape s = {.ring = {.cut = cut_of(request),
                        .size = (uint32_t)hosts,
                        .member = (uint32_t)host,
                        .rs_send = 0,
                        .rs_recv = 1,
                        .ag_send = 2,
                        .ag_recv = 3},
               .lanes = (uint16_t)lanes_of(topology),
               .local = (uint16_t)gw_topology_local_rank(topology, request->rank),
               .locals = (uint16_t)gw_topology_local_size(topology, host)};
    int before = (host + hosts - 1) % hosts;
    s.coll = topology->coll && s.locals > 1;
    s.previous_wide = gw_topology_local_size(topology, before) > 1;
    if (is_lane(&s) && hosts > 1) {
        s.ring.slots = gw_ring_walk_slots(&s.ring.cut, s.ring.size, request->pipeline);
        s.next = gw_topology_rank(topology, (host + 1) % hosts, s.local);
        s.previous = gw_topology_rank(topology, before, s.local);
    }
    count_local_streams(&s);
    plan->streams = s.first[GROUPS];
    plan->work_count = request->count ? work_of(&s, request->pipeline) : 0;
    GW_PLAN_KEEP(plan, &s);
}

static enum group group_of(const shape *s, uint32_t index) {
    int group = 0;
    while (index >= s->first[group + 1]) group++;
    return (enum group)group;
}

/* The local rank at the other end of a stream inside the host. */
static int local_peer(const shape *s, uint32_t index) {
    enum group group = group_of(s, index);
    int member = (int)(index - s->first[group]);
    bool skips_self = group == FROM_OTHERS || group == TO_OTHERS || is_lane(s);
    return member + (skips_self && member >= s->local);
}

static uint64_t coll_steps(const shape *s) {
    if (!s->coll || s->ring.cut.windows == 0) return 0;
    return is_one_coll(s) ? 1 : 2 * s->ring.cut.windows;
}

static void stream(const gw_plan *plan, uint32_t index, gw_stream *out) {
    shape s;
    GW_PLAN_RECALL(plan, &s);
    *out = (gw_stream){.kind = GW_STREAM_LOCAL, .peer = -1};
    if (index == COLL_STREAM) {
        out->actions = coll_steps(&s);
    } else if (index >= FIRST_LOCAL) {
        enum group group = group_of(&s, index);
        int host = (int)s.ring.member;
        out->kind = group == TO_OWNERS || group == TO_OTHERS ? GW_STREAM_SEND : GW_STREAM_RECV;
        out->peer = gw_topology_rank(&plan->request.topology, host, local_peer(&s, index));
        out->channel = group < TO_OTHERS ? 2 : 3;
        out->actions = s.ring.cut.columns * s.ring.size;
    } else if (is_lane(&s) && s.ring.size > 1) {
        bool sends = index % 2 == 0;
        *out = (gw_stream){.kind = sends ? GW_STREAM_SEND : GW_STREAM_RECV,
                           .peer = sends ? s.next : s.previous,
                           .channel = index / 2,
                           .actions = gw_ring_walk_steps(&s.ring)};
    }
}

static gw_range slice_of(const shape *s, const gw_pipeline_window *window, int lane) {
    return gw_range_part(gw_pipeline_window_range(&s->ring.cut, window), s->lanes, (uint64_t)lane);
}

static gw_range chunk_at(const shape *s, const gw_pipeline_window *window, int lane, uint32_t block, uint64_t column) {
    return gw_range_part(slice_of(s, window, lane), s->ring.size * window->columns, block * window->columns + column);
}

static gw_slot user_slot(gw_space space, gw_range at) { return gw_slot_at(space, at.from, at.to - at.from); }

/* SHM steps alternate: the next window is reduced inside the host before the result of this one is sent to its
 * ranks. */
static uint64_t coll_reduce_index(uint64_t window) { return window ? 2 * window - 1 : 0; }

static bool coll_reduces(uint64_t windows, uint64_t index, uint64_t *window) {
    bool reduces = index == 0 || (index % 2 == 1 && (index + 1) / 2 < windows);
    *window = reduces ? (index + 1) / 2 : index % 2 == 1 ? windows - 1 : index / 2 - 1;
    return reduces;
}

static size_t coll_buffer(const gw_plan *plan, const shape *s, uint64_t window) {
    size_t ring = s->ring.slots * s->ring.cut.chunk;
    return ring + (size_t)(window % coll_buffers(s)) * slice_max(s, plan->request.pipeline);
}

static gw_waits ring_done(const shape *s, uint32_t stream, uint64_t number) {
    if (!is_lane(s)) return (gw_waits){0};
    gw_pipeline_window window = gw_pipeline_window_at(&s->ring.cut, number);
    return gw_post_op(stream, gw_ring_walk_through(&s->ring, &window, s->ring.size - 2, window.columns - 1));
}

static void coll(const gw_plan *plan, const shape *s, uint64_t index, gw_action *out) {
    *out = (gw_action){.kind = GW_ACTION_SHM, .lanes = is_one_coll(s) ? s->locals : s->lanes};
    if (is_one_coll(s)) {
        out->task = GW_SHM_TASK_ALLREDUCE;
        out->src = gw_slot_at(GW_SPACE_IN, 0, plan->request.count);
        out->dst = gw_slot_at(GW_SPACE_OUT, 0, plan->request.count);
        return;
    }
    uint64_t number;
    bool reduces = coll_reduces(s->ring.cut.windows, index, &number);
    gw_pipeline_window window = gw_pipeline_window_at(&s->ring.cut, number);
    gw_range all = gw_pipeline_window_range(&s->ring.cut, &window);
    if (!reduces) {
        out->task = GW_SHM_TASK_ALLGATHER;
        out->src = out->dst = user_slot(GW_SPACE_OUT, all);
        out->ready[0] = ring_done(s, s->ring.rs_recv, number);
        out->ready[1] = ring_done(s, s->ring.ag_recv, number);
        return;
    }
    out->task = GW_SHM_TASK_REDUCE_SCATTER;
    out->dst_wide = true;
    out->src = user_slot(GW_SPACE_IN, all);
    if (is_lane(s)) {
        gw_range slice = slice_of(s, &window, s->local);
        out->dst = gw_slot_at(GW_SPACE_WORK, coll_buffer(plan, s, number), slice.to - slice.from);
    }
    /* The steps before this one have waited for the readers of this buffer, except for pending sends. */
    if (number >= 2) out->ready[0] = ring_done(s, s->ring.rs_send, number - 2);
}

static uint64_t window(const gw_plan *plan) { return 2 * (uint64_t)plan->request.pipeline; }

/* The slot where chunk i of the peer-th other local rank lands; the slot of the last peer ends up with the sum of the
 * host. */
static gw_slot window_slot(const gw_plan *plan, const shape *s, uint32_t peer, uint64_t i, size_t count) {
    uint64_t slot = s->ring.slots + peer * window(plan) + i % window(plan);
    return gw_slot_at(GW_SPACE_WORK, (size_t)slot * s->ring.cut.chunk, count);
}

/* The host's sum of a chunk, which the ring needs in turn `turn` of the window (see from_others). */
static gw_slot host_sum(const gw_plan *plan, const shape *s, const gw_ring_hop *pass, uint64_t turn, gw_range at,
                        bool *wide, gw_waits *ready) {
    *wide = s->locals > 1;
    if (!*wide) return user_slot(GW_SPACE_IN, at);
    if (s->coll) {
        uint64_t number = pass->window.number;
        size_t offset = at.from - slice_of(s, &pass->window, s->local).from;
        *ready = gw_post_op(COLL_STREAM, coll_reduce_index(number) + 1);
        return gw_slot_at(GW_SPACE_WORK, coll_buffer(plan, s, number) + offset, at.to - at.from);
    }
    uint64_t i = pass->window.before * s->ring.size + turn * pass->window.columns + pass->column;
    *ready = gw_post_op((uint32_t)s->first[FROM_OTHERS + 1] - 1, i + 1);
    return window_slot(plan, s, s->locals - 2u, i, at.to - at.from);
}

static void rs_send(const gw_plan *plan, const shape *s, uint64_t index, gw_action *out) {
    gw_ring_hop pass = gw_ring_walk_rs_send(&s->ring, index, out);
    gw_range at = chunk_at(s, &pass.window, s->local, pass.block, pass.column);
    out->wide = true;
    if (pass.first) out->src = host_sum(plan, s, &pass, 0, at, &out->wide, &out->ready[1]);
    else out->src = gw_ring_walk_slot(&s->ring, index - pass.window.columns, at.to - at.from);
}

static void rs_recv(const gw_plan *plan, const shape *s, uint64_t index, gw_action *out) {
    gw_ring_hop pass = gw_ring_walk_rs_recv(&s->ring, index, out);
    gw_range at = chunk_at(s, &pass.window, s->local, pass.block, pass.column);
    out->wide = !pass.first || s->previous_wide;
    out->src = host_sum(plan, s, &pass, pass.round + 1, at, &out->src_wide, &out->ready[1]);
    out->land = gw_ring_walk_slot(&s->ring, index, at.to - at.from);
    out->dst = pass.last ? user_slot(GW_SPACE_OUT, at) : out->land;
}

static void ag_send(const shape *s, uint64_t index, gw_action *out) {
    gw_ring_hop pass = gw_ring_walk_ag_send(&s->ring, index, out);
    out->src = user_slot(GW_SPACE_OUT, chunk_at(s, &pass.window, s->local, pass.block, pass.column));
    if (pass.first)
        out->ready[0] =
            gw_post_op(s->ring.rs_recv, gw_ring_walk_through(&s->ring, &pass.window, s->ring.size - 2, pass.column));
}

static void ag_recv(const shape *s, uint64_t index, gw_action *out) {
    gw_ring_hop pass = gw_ring_walk_ag_recv(&s->ring, index, out);
    out->land = out->dst = user_slot(GW_SPACE_OUT, chunk_at(s, &pass.window, s->local, pass.block, pass.column));
}

/* The stream that frees the slot of chunk `index` of a peer: the sum of the next peer, or, for the sum of the host, the
 * ring. */
static gw_waits window_user(const shape *s, uint32_t stream, uint64_t index) {
    if (stream + 1 < s->first[FROM_OTHERS + 1]) return gw_post_op(stream + 1, index + 1);
    if (s->ring.size == 1) return gw_post_op(stream, index + 1);
    gw_pipeline_window window = gw_pipeline_window_of_step(&s->ring.cut, s->ring.size, index);
    uint64_t turn = window.within / window.columns, column = window.within % window.columns;
    return turn ? gw_post_op(s->ring.rs_recv, gw_ring_walk_through(&s->ring, &window, turn - 1, column))
                : gw_post_op(s->ring.rs_send, gw_ring_walk_through(&s->ring, &window, 0, column));
}

static void from_others(const gw_plan *plan, const shape *s, uint32_t stream, uint64_t i, gw_range at, gw_action *out) {
    uint32_t peer = stream - s->first[FROM_OTHERS];
    size_t count = at.to - at.from;
    *out = (gw_action){.kind = GW_ACTION_RECV_REDUCE, .src = user_slot(GW_SPACE_IN, at)};
    out->land = out->dst = window_slot(plan, s, peer, i, count);
    if (peer > 0) {
        out->src = window_slot(plan, s, peer - 1, i, count);
        out->src_wide = true;
        out->ready[0] = gw_post_op(stream - 1, i + 1);
    }
    if (s->ring.size == 1 && stream + 1 == s->first[FROM_OTHERS + 1]) {
        out->finish = true;
        out->dst = user_slot(GW_SPACE_OUT, at);
    }
    if (i >= window(plan)) out->free[0] = window_user(s, stream, i - window(plan));
}

/* Results go to the other local ranks as they complete: the own block after the last reduction, the other blocks as the
 * ring delivers them. */
static void to_others(const shape *s, uint64_t i, const gw_pipeline_window *window, uint64_t turn, uint64_t column,
                      gw_range at, gw_action *out) {
    *out = (gw_action){.kind = GW_ACTION_SEND, .src = user_slot(GW_SPACE_OUT, at)};
    if (s->ring.size == 1) out->ready[0] = gw_post_op((uint32_t)s->first[FROM_OTHERS + 1] - 1, i + 1);
    else if (turn == 0)
        out->ready[0] = gw_post_op(s->ring.rs_recv, gw_ring_walk_through(&s->ring, window, s->ring.size - 2, column));
    else out->ready[0] = gw_post_op(s->ring.ag_recv, gw_ring_walk_through(&s->ring, window, turn - 1, column));
}

/* Chunks to the owners go in the order in which the ring needs them; results come back in the order in which it
 * completes them. */
static void local_step(const gw_plan *plan, const shape *s, uint32_t stream, uint64_t i, gw_action *out) {
    enum group group = group_of(s, stream);
    gw_pipeline_window window = gw_pipeline_window_of_step(&s->ring.cut, s->ring.size, i);
    uint64_t turn = window.within / window.columns, column = window.within % window.columns;
    uint64_t back = group < TO_OTHERS ? turn + 1 : turn;
    uint32_t block = (uint32_t)((s->ring.member + s->ring.size - back) % s->ring.size);
    int lane = group == TO_OWNERS || group == FROM_OWNERS ? local_peer(s, stream) : s->local;
    gw_range at = chunk_at(s, &window, lane, block, column);
    switch (group) {
    case TO_OWNERS: *out = (gw_action){.kind = GW_ACTION_SEND, .src = user_slot(GW_SPACE_IN, at)}; break;
    case FROM_OTHERS: from_others(plan, s, stream, i, at, out); break;
    case TO_OTHERS: to_others(s, i, &window, turn, column, at, out); break;
    default: *out = (gw_action){.kind = GW_ACTION_RECV}; out->land = out->dst = user_slot(GW_SPACE_OUT, at);
    }
}

static void step(const gw_plan *plan, uint32_t index, uint64_t i, gw_action *out) {
    shape s;
    GW_PLAN_RECALL(plan, &s);
    if (index >= FIRST_LOCAL) local_step(plan, &s, index, i, out);
    else if (index == COLL_STREAM) coll(plan, &s, i, out);
    else if (index == s.ring.rs_send) rs_send(plan, &s, i, out);
    else if (index == s.ring.rs_recv) rs_recv(plan, &s, i, out);
    else if (index == s.ring.ag_send) ag_send(&s, i, out);
    else ag_recv(&s, i, out);
}

/* Elements of the first block that a host sends, over all lanes: whole columns, and its chunks of the last window. */
static uint64_t first_block(const gw_pipeline_cut *cut, int lanes, int hosts, int host) {
    gw_pipeline_window last = gw_pipeline_window_at(cut, cut->windows - 1);
    uint64_t elements = last.before * (uint64_t)lanes * cut->chunk, block = (uint64_t)((host + hosts - 1) % hosts);
    for (int lane = 0; lane < lanes; lane++) {
        gw_range slice = gw_range_part(gw_pipeline_window_range(cut, &last), (uint64_t)lanes, (uint64_t)lane);
        for (uint64_t column = 0; column < last.columns; column++) {
            gw_range chunk = gw_range_part(slice, (uint64_t)hosts * last.columns, block * last.columns + column);
            elements += chunk.to - chunk.from;
        }
    }
    return elements;
}

static gw_cost cost(const gw_plan_request *request) {
    const gw_topology *topology = &request->topology;
    uint64_t n = request->count, hosts = (uint64_t)gw_topology_hosts(topology), lanes = (uint64_t)lanes_of(topology);
    if (n == 0) return (gw_cost){0};
    gw_pipeline_cut cut = cut_of(request);
    uint64_t chunks = lanes * hosts * cut.columns, raw_first = 0, inside = 0;
    gw_cost cost = {.messages = 2 * (hosts - 1) * chunks, .elements = (hosts - 1) * n};
    for (uint64_t host = 0; host < hosts; host++) {
        uint64_t locals = (uint64_t)gw_topology_local_size(topology, (int)host);
        if (locals == 1) raw_first += hosts > 1 ? first_block(&cut, (int)lanes, (int)hosts, (int)host) : 0;
        else if (topology->coll) cost.coll_elements += hosts == 1 ? 2 * locals * n : (2 * locals + 1) * n;
        else inside += locals - 1;
    }
    cost.messages += 2 * inside * chunks;
    cost.elements += 2 * inside * n + raw_first;
    cost.wide_elements = hosts > 1 ? (hosts - 1) * n - raw_first : 0;
    cost.start_ups = 2 * (hosts - 1) + (inside ? 2 : 0);
    return cost;
}

static gw_cost_terms work(const gw_cost_inputs *s) {
    double others = s->hosts - 1, local = s->per_host > 1 ? 2 : 0;
    return (gw_cost_terms){.rounds = 2 * others + local, .bytes = 2 * others * s->bytes / s->hosts,
                     .messages = 2 * others + local, .crowd = 1, .reduced = s->bytes,
                     .preference = s->hosts > 1 && s->per_host > 1 ? 0 : -1};
}

const gw_plan_builder gw_plan_hierarchical = {
    .technique = {.name = "hierarchical", .about = "shared memory within a host, ring across hosts",
                  .params = GW_PARAMS(GW_PARAM_CHUNK)},
    .refuses = refuses,
    .lay_out = lay_out,
    .stream = stream,
    .action = step,
    .cost = cost,
    .work = work,
    .local = true,
    .by_hosts = true,
    .symmetric = true,
};
