/* ring.c - reduce-scatter and all-gather around a ring of all ranks (Patarasuk and Yuan 2009; Gibiansky 2017).
 *
 * Every rank sends only to the next one in the order of the topology. Data is processed in windows of a few messages
 * per rank, so partial sums stay in cache and the next window follows without a pause. Each element is summed around
 * the ring, starting behind its owner.
 *
 * In place: a rank reads each element of IN once, when it passes the partial sum on. The finished value returns only
 * after all ranks have done so; OUT is never written too early.
 *
 * Cost of an all-reduce of n elements: each rank sends 2 (p-1)/p n, which is the least possible, in 2 (p-1) rounds. */
#include "plan/ring_walk.h"

typedef struct shape {
    gw_ring_walk ring;
    uint32_t copy;      /* stream number, all-gather only */
    int next, previous; /* ranks */
} shape;

static const char *refuses(const gw_plan_request *request) {
    bool supported = request->collective == GW_COLL_ALLREDUCE || request->collective == GW_COLL_REDUCE_SCATTER ||
                     request->collective == GW_COLL_ALLGATHER;
    return supported ? NULL : "supports only allreduce, reduce_scatter and allgather";
}

static gw_pipeline_cut cut_of(const gw_plan_request *request) {
    if (request->collective == GW_COLL_ALLREDUCE)
        return gw_pipeline_cut_make(request->count, (uint64_t)request->topology.world, request->chunk_count,
                                    request->pipeline);
    return gw_pipeline_cut_make(gw_plan_part_max(request), 1, request->chunk_count, request->pipeline);
}

static void lay_out(gw_plan *plan) {
    const gw_plan_request *request = &plan->request;
    const gw_topology *topology = &request->topology;
    bool scatters = request->collective != GW_COLL_ALLGATHER;
    int world = topology->world, place = gw_topology_place(topology, request->rank);
    shape s = {.ring = {.cut = cut_of(request),
                        .size = (uint32_t)world,
                        .member = (uint32_t)place,
                        .rs_send = 0,
                        .rs_recv = 1,
                        .ag_send = scatters ? 2 : 0,
                        .ag_recv = scatters ? 3 : 1},
               .copy = 2,
               .next = gw_topology_at(topology, (place + 1) % world),
               .previous = gw_topology_at(topology, (place + world - 1) % world)};
    s.ring.slots = scatters ? gw_ring_walk_slots(&s.ring.cut, s.ring.size, request->pipeline) : 0;
    plan->work_count = s.ring.slots * s.ring.cut.chunk;
    plan->streams = request->collective == GW_COLL_ALLREDUCE ? 4 : scatters ? 2 : 3;
    GW_PLAN_KEEP(plan, &s);
}

static bool is_copy(const gw_plan *plan, const shape *s, uint32_t index) {
    return plan->request.collective == GW_COLL_ALLGATHER && index == s->copy;
}

static void stream(const gw_plan *plan, uint32_t index, gw_stream *out) {
    shape s;
    GW_PLAN_RECALL(plan, &s);
    if (is_copy(plan, &s, index)) {
        *out = (gw_stream){.kind = GW_STREAM_LOCAL, .peer = -1, .actions = s.ring.cut.columns};
        return;
    }
    bool sends = index % 2 == 0;
    *out = (gw_stream){.kind = sends ? GW_STREAM_SEND : GW_STREAM_RECV,
                       .peer = sends ? s.next : s.previous,
                       .channel = index / 2,
                       .actions = gw_ring_walk_steps(&s.ring)};
}

/* Where a chunk of a block lies in the large buffer. */
static gw_range chunk_at(const gw_plan *plan, const gw_pipeline_cut *cut, const gw_pipeline_window *window,
                         uint32_t block, uint64_t column) {
    if (plan->request.collective == GW_COLL_ALLREDUCE)
        return gw_range_part(gw_pipeline_window_range(cut, window), cut->ways * window->columns,
                             block * window->columns + column);
    gw_range part = gw_plan_part(&plan->request, gw_topology_at(&plan->request.topology, (int)block));
    size_t offset = (size_t)(window->before + column) * cut->chunk;
    size_t from = part.from + gw_min_size(offset, part.to - part.from);
    return (gw_range){from, from + gw_min_size(cut->chunk, part.to - from)};
}

static gw_range pass_at(const gw_plan *plan, const shape *s, const gw_ring_hop *pass) {
    return chunk_at(plan, &s->ring.cut, &pass->window, pass->block, pass->column);
}

/* A range of the large buffer as a slot of the buffer that holds only this rank's part. */
static gw_slot own_slot(const gw_plan *plan, gw_space space, gw_range at) {
    return gw_slot_at(space, at.from - gw_plan_part(&plan->request, plan->request.rank).from, at.to - at.from);
}

static void rs_send(const gw_plan *plan, const shape *s, uint64_t index, gw_action *out) {
    gw_ring_hop pass = gw_ring_walk_rs_send(&s->ring, index, out);
    gw_range at = pass_at(plan, s, &pass);
    out->wide = !pass.first;
    out->src = pass.first ? gw_slot_at(GW_SPACE_IN, at.from, at.to - at.from)
                          : gw_ring_walk_slot(&s->ring, index - pass.window.columns, at.to - at.from);
}

static void rs_recv(const gw_plan *plan, const shape *s, uint64_t index, gw_action *out) {
    gw_ring_hop pass = gw_ring_walk_rs_recv(&s->ring, index, out);
    gw_range at = pass_at(plan, s, &pass);
    out->wide = !pass.first;
    out->src = gw_slot_at(GW_SPACE_IN, at.from, at.to - at.from);
    out->land = out->dst = gw_ring_walk_slot(&s->ring, index, at.to - at.from);
    if (pass.last)
        out->dst = plan->request.collective == GW_COLL_ALLREDUCE ? gw_slot_at(GW_SPACE_OUT, at.from, at.to - at.from)
                                                                 : own_slot(plan, GW_SPACE_OUT, at);
}

static void ag_send(const gw_plan *plan, const shape *s, uint64_t index, gw_action *out) {
    gw_ring_hop pass = gw_ring_walk_ag_send(&s->ring, index, out);
    gw_range at = pass_at(plan, s, &pass);
    bool from_in = pass.first && plan->request.collective == GW_COLL_ALLGATHER;
    out->src = from_in ? own_slot(plan, GW_SPACE_IN, at) : gw_slot_at(GW_SPACE_OUT, at.from, at.to - at.from);
    if (pass.first && !from_in) {
        uint64_t result = gw_ring_walk_through(&s->ring, &pass.window, s->ring.size - 2, pass.column);
        out->ready[0] = gw_post_op(s->ring.rs_recv, result);
    }
}

static void ag_recv(const gw_plan *plan, const shape *s, uint64_t index, gw_action *out) {
    gw_ring_hop pass = gw_ring_walk_ag_recv(&s->ring, index, out);
    gw_range at = pass_at(plan, s, &pass);
    out->land = out->dst = gw_slot_at(GW_SPACE_OUT, at.from, at.to - at.from);
}

static void copy(const gw_plan *plan, const shape *s, uint64_t index, gw_action *out) {
    gw_pipeline_window window = gw_pipeline_window_of_step(&s->ring.cut, 1, index);
    gw_range at = chunk_at(plan, &s->ring.cut, &window, s->ring.member, window.within);
    *out = (gw_action){.kind = GW_ACTION_COPY,
                       .src = own_slot(plan, GW_SPACE_IN, at),
                       .dst = gw_slot_at(GW_SPACE_OUT, at.from, at.to - at.from)};
}

static void step(const gw_plan *plan, uint32_t index, uint64_t i, gw_action *out) {
    shape s;
    GW_PLAN_RECALL(plan, &s);
    if (is_copy(plan, &s, index)) copy(plan, &s, i, out);
    else if (index == s.ring.ag_send) ag_send(plan, &s, i, out);
    else if (index == s.ring.ag_recv) ag_recv(plan, &s, i, out);
    else if (index == s.ring.rs_send) rs_send(plan, &s, i, out);
    else rs_recv(plan, &s, i, out);
}

static gw_cost cost(const gw_plan_request *request) {
    uint64_t p = (uint64_t)request->topology.world, n = gw_plan_total(request), columns = cut_of(request).columns;
    bool scatters = request->collective != GW_COLL_ALLGATHER, gathers = request->collective != GW_COLL_REDUCE_SCATTER;
    uint64_t phases = (uint64_t)scatters + (uint64_t)gathers;
    return (gw_cost){.messages = phases * p * (p - 1) * columns,
                     .elements = (scatters ? n : 0) + (gathers ? (p - 1) * n : 0),
                     .wide_elements = scatters ? (p - 2) * n : 0,
                     .start_ups = n ? phases * (p - 1) : 0};
}

static gw_cost_terms work(const gw_cost_inputs *s) {
    double others = s->ranks - 1, rounds = gw_cost_directions(s) * others;
    return (gw_cost_terms){.rounds = rounds, .bytes = rounds * s->bytes / s->ranks, .messages = rounds, .crowd = 1,
                     .reduced = others * s->bytes / s->ranks, .preference = 1};
}

const gw_plan_builder gw_plan_ring = {
    .technique = {.name = "ring", .about = "around a ring in 2(n-1) steps, fewest bytes",
                  .params = GW_PARAMS(GW_PARAM_CHUNK)},
    .refuses = refuses,
    .lay_out = lay_out,
    .stream = stream,
    .action = step,
    .cost = cost,
    .work = work,
    .symmetric = true,
};
