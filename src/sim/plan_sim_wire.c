/* plan_sim_wire.c - connections and host-local collectives, which take time outside a rank. */
#include <stdlib.h>

#include "sim/plan_sim_internal.h"

/* Connections. */

static size_t slot_of(const gw_plan_sim *sim, int from, int to) {
    uint64_t key = ((uint64_t)(uint32_t)from << 32 | (uint32_t)to) * UINT64_C(0x9e3779b97f4a7c15);
    size_t at = (size_t)(key >> 20) & (sim->connection_room - 1);
    while (sim->connections[at] && (sim->connections[at]->from != from || sim->connections[at]->to != to))
        at = (at + 1) & (sim->connection_room - 1);
    return at;
}

static bool grow(gw_plan_sim *sim) {
    size_t old_room = sim->connection_room, room = old_room ? 2 * old_room : 1024;
    connection **old = sim->connections, **made = calloc(room, sizeof(connection *));
    if (!made) return false;
    sim->connections = made;
    sim->connection_room = room;
    for (size_t i = 0; i < old_room; i++)
        if (old[i]) made[slot_of(sim, old[i]->from, old[i]->to)] = old[i];
    free(old);
    return true;
}

static void start_next(gw_plan_sim *sim, connection *c) {
    c->first->began = sim->events.now;
    c->first->behind = sim->config.queue_bytes > 0 ? gw_net_flow_queue_seconds(&c->flow, sim->config.queue_bytes) : 0;
    gw_net_flow_load(&c->flow, c->first->bytes);
}

static void granted(gw_plan_sim *sim, const sim_stream *receiver, uint64_t upto) {
    gw_plan_sim_op *op = receiver->of->op;
    receiver->other->granted = upto;
    if (op->unfinished > 1) gw_plan_sim_queue(sim, receiver->other);
    gw_plan_sim_release(sim, op);
}

static void announced(gw_plan_sim *sim, sim_stream *receiver) {
    receiver->announced = true;
    gw_plan_sim_queue(sim, receiver);
}

static void arrive(gw_event *event, void *ctx) {
    gw_plan_sim *sim = ctx;
    message *m = (message *)event;
    message came = *m;
    sim->path = m->path;
    m->next = sim->spare_messages;
    sim->spare_messages = m;
    if (came.from) gw_plan_sim_arrived(sim, came.from->other);
    else if (came.grant) granted(sim, came.grant, came.granted);
    else if (came.head) announced(sim, came.head);
    else sim->config.delivered(sim->config.ctx, came.to, came.tag);
    gw_plan_sim_drain(sim);
}

/* The first message of a connection is sent completely. */
static void left(gw_net_flow *flow, void *ctx) {
    gw_plan_sim *sim = ctx;
    connection *c = (connection *)flow;
    message *m = c->first;
    double now = sim->events.now, alone = flow->full_rate > 0 ? m->bytes / flow->full_rate : 0;
    if (alone > now - m->began) alone = now - m->began;
    m->path = gw_time_breakdown_plus(m->path, GW_TIME_QUEUE, m->began - m->posted);
    m->path = gw_time_breakdown_plus(m->path, GW_TIME_TRANSFER, alone);
    m->path = gw_time_breakdown_plus(m->path, GW_TIME_SHARING, now - m->began - alone);
    sim->path = m->path;
    c->first = m->next;
    if (!c->first) c->last = NULL;
    else start_next(sim, c);
    double arrival = now + c->latency + m->behind;
    if (arrival > c->arrived) c->arrived = arrival; /* messages of a connection arrive in order */
    m->path = gw_time_breakdown_plus(m->path, GW_TIME_LATENCY, c->latency);
    m->path = gw_time_breakdown_plus(m->path, GW_TIME_QUEUE, c->arrived - now - c->latency);
    sim_stream *sender = m->from, *granter = m->grant;
    gw_event_set(&sim->events, &m->arrival, c->arrived);
    if (sender) gw_plan_sim_complete(sim, sender);
    if (granter) {
        granter->granting = false;
        gw_plan_sim_queue(sim, granter);
    }
    gw_plan_sim_drain(sim);
}

connection *gw_plan_sim_connect(gw_plan_sim *sim, int from, int to, gw_error *error) {
    if (2 * sim->connection_count >= sim->connection_room && !grow(sim)) goto memory;
    size_t at = slot_of(sim, from, to);
    if (sim->connections[at]) return sim->connections[at];
    connection *c = gw_plan_sim_memory(sim, sizeof *c);
    if (!c) goto memory;
    *c = (connection){.from = from, .to = to};
    const gw_topology *t = &sim->config.topology;
    int route[GW_ROUTE_LINKS_MAX];
    int here = gw_topology_host(t, from), there = gw_topology_host(t, to);
    int hops = gw_fabric_route(sim->config.fabric, here, there, route, &c->latency);
    c->latency += sim->config.message_seconds;
    if (gw_net_flow_init(sim->net, &c->flow, route, hops, left, error)) return NULL;
    sim->connections[at] = c;
    sim->connection_count++;
    return c;
memory:
    gw_fail(error, GW_MEMORY, "out of memory for the connections of %d ranks", sim->ranks);
    return NULL;
}

/* Appends a message. An urgent one overtakes less urgent ones beyond the first `ahead` bytes, which the kernel has
 * already taken, as in transport/tcp/tcp.c. */
static void enqueue(connection *c, message *m, double ahead) {
    message *before = m->urgency ? c->first : c->last;
    for (double taken = before ? before->bytes : 0; m->urgency && before && before->next; taken += before->bytes) {
        if (taken >= ahead && before->next->urgency < m->urgency) break;
        before = before->next;
    }
    m->next = before ? before->next : NULL;
    if (before) before->next = m;
    else c->first = m;
    if (!m->next) c->last = m;
}

static void put_on(gw_plan_sim *sim, connection *c, const message *what) {
    message *m = sim->spare_messages;
    if (m) sim->spare_messages = m->next;
    else m = gw_plan_sim_memory(sim, sizeof *m);
    if (!m) return;
    *m = *what;
    m->arrival = (gw_event){.act = arrive};
    m->posted = sim->events.now;
    m->path = sim->path;
    enqueue(c, m, sim->config.ahead_bytes);
    if (c->first == m) start_next(sim, c);
}

void gw_plan_sim_send(gw_plan_sim *sim, sim_stream *l, double bytes) {
    sim->messages++;
    sim->bytes += bytes;
    put_on(sim, l->connection, &(message){.from = l, .bytes = bytes, .urgency = l->of->op->spec.urgency});
}

/* A grant has no bytes here, but it queues on its connection like any message. */
void gw_plan_sim_grant(gw_plan_sim *sim, sim_stream *l) {
    l->of->op->unfinished++;
    put_on(sim, l->connection, &(message){.grant = l, .granted = l->granted, .urgency = GW_URGENT_SIGNAL});
}

void gw_plan_sim_announce(gw_plan_sim *sim, sim_stream *l) { put_on(sim, l->connection, &(message){.head = l->other}); }

gw_status gw_plan_sim_send_message(gw_plan_sim *sim, int from, int to, double bytes, int tag, gw_error *error) {
    connection *c = gw_plan_sim_connect(sim, from, to, error);
    if (!c) return GW_MEMORY;
    put_on(sim, c, &(message){.to = to, .tag = tag, .bytes = bytes});
    return GW_OK;
}

/* Host-local collectives. One begins when all ranks of the host have arrived at it; a rank begins the host-local
 * collectives of its operations in start order. They share the host's memory bandwidth. */

/* Queues the local streams of the rank's first part that has host-local collectives to begin. */
static void wake_next(gw_plan_sim *sim, int rank) {
    part *p = sim->rank[rank].coll_first;
    for (uint32_t s = 0; p && s < p->plan.streams; s++)
        if (p->streams[s].flow == GW_STREAM_LOCAL) gw_plan_sim_queue(sim, &p->streams[s]);
}

static void coll_over(gw_net_flow *flow, void *ctx) {
    gw_plan_sim *sim = ctx;
    coll *b = (coll *)flow;
    sim->path = gw_time_breakdown_plus(b->path, GW_TIME_REDUCE, sim->events.now - b->began);
    int arrived = b->arrived;
    b->arrived = 0;
    for (int i = 0; i < arrived; i++) {
        int rank = b->streams[i]->of->rank;
        b->streams[i]->on_coll = sim->rank[rank].on_coll = false;
        gw_plan_sim_complete(sim, b->streams[i]);
        wake_next(sim, rank);
    }
    gw_plan_sim_drain(sim);
}

gw_status gw_plan_sim_open_colls(gw_plan_sim *sim, gw_error *error) {
    const gw_topology *t = &sim->config.topology;
    sim->colls = calloc((size_t)sim->hosts + 1, sizeof *sim->colls);
    sim->coll_streams = calloc((size_t)sim->ranks + 1, sizeof *sim->coll_streams);
    if (!sim->colls || !sim->coll_streams) return gw_fail(error, GW_MEMORY, "out of memory for %d hosts", sim->hosts);
    for (int rank = 0; rank < sim->ranks; rank++) sim->colls[gw_topology_host(t, rank)].locals++;
    sim_stream **streams = sim->coll_streams;
    for (int host = 0; host < sim->hosts; host++) {
        coll *b = &sim->colls[host];
        int locals = b->locals, memory = gw_fabric_memory(sim->config.fabric, host);
        gw_status status = gw_net_flow_init(sim->net, &b->flow, &memory, 1, coll_over, error);
        if (status) return status;
        b->streams = streams;
        streams += locals;
    }
    return GW_OK;
}

/* Elements that all ranks of the host read and write together. */
static double touched(const gw_action *step, int locals) {
    bool cut_in = step->task == GW_SHM_TASK_REDUCE_SCATTER || step->task == GW_SHM_TASK_SCATTER;
    double n = (double)(cut_in ? step->src.count : step->dst.count);
    switch (step->task) {
    case GW_SHM_TASK_ALLREDUCE:
    case GW_SHM_TASK_ALLTOALL: return 2 * locals * n;
    case GW_SHM_TASK_GATHER:
    case GW_SHM_TASK_SCATTER: return 2 * n;
    case GW_SHM_TASK_ALLGATHER: return (locals + (step->src.space == GW_SPACE_IN)) * n;
    case GW_SHM_TASK_REDUCE_SCATTER:
    case GW_SHM_TASK_REDUCE:
    case GW_SHM_TASK_BROADCAST: return (locals + 1) * n;
    default: return 0;
    }
}

static void begin_coll(gw_plan_sim *sim, coll *b) {
    const gw_fabric *fabric = sim->config.fabric;
    double bytes = b->bytes + fabric->memory_latency * fabric->memory_rate;
    b->path = sim->path;
    b->began = sim->events.now;
    gw_net_flow_load(&b->flow, bytes);
}

static void leave_coll_queue(gw_plan_sim *sim, part *p) {
    rank_state *rank = &sim->rank[p->rank];
    if (--p->coll_left > 0) return;
    rank->coll_first = p->next;
    p->next = NULL;
    if (!rank->coll_first) rank->coll_last = NULL;
}

void gw_plan_sim_coll(gw_plan_sim *sim, sim_stream *l, const gw_action *step) {
    part *p = l->of;
    rank_state *rank = &sim->rank[p->rank];
    if (rank->coll_first != p || rank->on_coll) return;
    coll *b = &sim->colls[gw_topology_host(&sim->config.topology, p->rank)];
    l->acted++;
    l->on_coll = rank->on_coll = true;
    leave_coll_queue(sim, p);
    b->streams[b->arrived++] = l;
    b->bytes = touched(step, b->locals) * (double)p->op->spec.unit_bytes;
    if (b->arrived == b->locals) begin_coll(sim, b);
}
