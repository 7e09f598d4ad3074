/* run_wire.c - connections and boards: what takes time outside a rank. */
#include <stdlib.h>

#include "sim/run_internal.h"

/* Connections. */

static size_t place_of(const gw_run *run, int from, int to) {
    uint64_t key = ((uint64_t)(uint32_t)from << 32 | (uint32_t)to) * UINT64_C(0x9e3779b97f4a7c15);
    size_t at = (size_t)(key >> 20) & (run->connection_room - 1);
    while (run->connections[at] && (run->connections[at]->from != from || run->connections[at]->to != to))
        at = (at + 1) & (run->connection_room - 1);
    return at;
}

static bool grow(gw_run *run) {
    size_t old_room = run->connection_room, room = old_room ? 2 * old_room : 1024;
    connection **old = run->connections, **made = calloc(room, sizeof(connection *));
    if (!made) return false;
    run->connections = made;
    run->connection_room = room;
    for (size_t i = 0; i < old_room; i++)
        if (old[i]) made[place_of(run, old[i]->from, old[i]->to)] = old[i];
    free(old);
    return true;
}

static void start_next(gw_run *run, connection *c) {
    c->first->began = run->events.now;
    c->first->behind = run->config.queue_bytes > 0 ? gw_net_flow_behind(&c->flow, run->config.queue_bytes) : 0;
    gw_net_flow_load(&c->flow, c->first->bytes);
}

static void granted(gw_run *run, const lane *receiver, uint64_t upto) {
    gw_run_op *op = receiver->of->op;
    receiver->other->granted = upto;
    if (op->unfinished > 1) gw_run_queue(run, receiver->other);
    gw_run_release(run, op);
}

static void announced(gw_run *run, lane *receiver) {
    receiver->told = true;
    gw_run_queue(run, receiver);
}

static void arrive(gw_event *event, void *ctx) {
    gw_run *run = ctx;
    message *m = (message *)event;
    message came = *m;
    run->path = m->path;
    m->next = run->spare_messages;
    run->spare_messages = m;
    if (came.from) gw_run_arrived(run, came.from->other);
    else if (came.grant) granted(run, came.grant, came.granted);
    else if (came.head) announced(run, came.head);
    else run->config.told(run->config.ctx, came.to, came.tag);
    gw_run_drain(run);
}

/* The first message has left. */
static void left(gw_net_flow *flow, void *ctx) {
    gw_run *run = ctx;
    connection *c = (connection *)flow;
    message *m = c->first;
    double now = run->events.now, alone = flow->full_rate > 0 ? m->bytes / flow->full_rate : 0;
    if (alone > now - m->began) alone = now - m->began;
    m->path = gw_path_plus(m->path, GW_PATH_QUEUE, m->began - m->posted);
    m->path = gw_path_plus(m->path, GW_PATH_TRANSFER, alone);
    m->path = gw_path_plus(m->path, GW_PATH_SHARING, now - m->began - alone);
    run->path = m->path;
    c->first = m->next;
    if (!c->first) c->last = NULL;
    else start_next(run, c);
    double arrival = now + c->latency + m->behind;
    if (arrival > c->arrived) c->arrived = arrival; /* nothing overtakes */
    m->path = gw_path_plus(m->path, GW_PATH_LATENCY, c->latency);
    m->path = gw_path_plus(m->path, GW_PATH_QUEUE, c->arrived - now - c->latency);
    lane *sender = m->from, *granter = m->grant;
    gw_event_set(&run->events, &m->arrival, c->arrived);
    if (sender) gw_run_complete(run, sender);
    if (granter) {
        granter->granting = false;
        gw_run_queue(run, granter);
    }
    gw_run_drain(run);
}

connection *gw_run_connect(gw_run *run, int from, int to, gw_error *error) {
    if (2 * run->connection_count >= run->connection_room && !grow(run)) goto memory;
    size_t at = place_of(run, from, to);
    if (run->connections[at]) return run->connections[at];
    connection *c = gw_run_memory(run, sizeof *c);
    if (!c) goto memory;
    *c = (connection){.from = from, .to = to};
    const gw_topology *t = &run->config.topology;
    int way[GW_WAY_MAX];
    int hops = gw_fabric_way(run->config.fabric, gw_topology_host(t, from), gw_topology_host(t, to), way, &c->latency);
    c->latency += run->config.message_seconds;
    if (gw_net_flow_init(run->net, &c->flow, way, hops, left, error)) return NULL;
    run->connections[at] = c;
    run->connection_count++;
    return c;
memory:
    gw_fail(error, GW_MEMORY, "out of memory for the connections of %d ranks", run->ranks);
    return NULL;
}

/* Behind everything; what is urgent overtakes what is less so and the kernel has not begun to take, as in
 * transport/tcp.c. */
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

static void put_on(gw_run *run, connection *c, const message *what) {
    message *m = run->spare_messages;
    if (m) run->spare_messages = m->next;
    else m = gw_run_memory(run, sizeof *m);
    if (!m) return;
    *m = *what;
    m->arrival = (gw_event){.act = arrive};
    m->posted = run->events.now;
    m->path = run->path;
    enqueue(c, m, run->config.ahead_bytes);
    if (c->first == m) start_next(run, c);
}

void gw_run_send(gw_run *run, lane *l, double bytes) {
    run->messages++;
    run->bytes += bytes;
    put_on(run, l->connection, &(message){.from = l, .bytes = bytes, .urgency = l->of->op->spec.urgency});
}

/* Its few bytes are not counted; that it waits for what is on its connection is what matters. */
void gw_run_grant(gw_run *run, lane *l) {
    l->of->op->unfinished++;
    put_on(run, l->connection, &(message){.grant = l, .granted = l->granted, .urgency = GW_URGENT_SIGNAL});
}

void gw_run_announce(gw_run *run, lane *l) {
    put_on(run, l->connection, &(message){.head = l->other});
}

gw_status gw_run_tell(gw_run *run, int from, int to, double bytes, int tag, gw_error *error) {
    connection *c = gw_run_connect(run, from, to, error);
    if (!c) return GW_MEMORY;
    put_on(run, c, &(message){.to = to, .tag = tag, .bytes = bytes});
    return GW_OK;
}

/* Boards. A task begins when all ranks of the host have come to it, each having begun all tasks of its operations
 * before; reading and writing share the host's memory. */

/* Whose turn it is at the board looks again. */
static void look_again(gw_run *run, int rank) {
    part *p = run->rank[rank].board_first;
    for (uint32_t s = 0; p && s < p->plan.streams; s++)
        if (p->lanes[s].flow == GW_FLOW_LOCAL) gw_run_queue(run, &p->lanes[s]);
}

static void board_over(gw_net_flow *flow, void *ctx) {
    gw_run *run = ctx;
    board *b = (board *)flow;
    run->path = gw_path_plus(b->path, GW_PATH_REDUCE, run->events.now - b->began);
    int lanes = b->arrived;
    b->arrived = 0;
    for (int i = 0; i < lanes; i++) {
        int rank = b->lanes[i]->of->rank;
        b->lanes[i]->on_board = run->rank[rank].on_board = false;
        gw_run_complete(run, b->lanes[i]);
        look_again(run, rank);
    }
    gw_run_drain(run);
}

gw_status gw_run_open_boards(gw_run *run, gw_error *error) {
    const gw_topology *t = &run->config.topology;
    run->boards = calloc((size_t)run->hosts + 1, sizeof *run->boards);
    run->board_lanes = calloc((size_t)run->ranks + 1, sizeof *run->board_lanes);
    if (!run->boards || !run->board_lanes)
        return gw_fail(error, GW_MEMORY, "out of memory for %d hosts", run->hosts);
    for (int rank = 0; rank < run->ranks; rank++) run->boards[gw_topology_host(t, rank)].locals++;
    lane **lanes = run->board_lanes;
    for (int host = 0; host < run->hosts; host++) {
        board *b = &run->boards[host];
        int locals = b->locals, memory = gw_fabric_memory(run->config.fabric, host);
        gw_status status = gw_net_flow_init(run->net, &b->flow, &memory, 1, board_over, error);
        if (status) return status;
        b->lanes = lanes;
        lanes += locals;
    }
    return GW_OK;
}

/* Elements read and written by all ranks of the host together. */
static double touched(const gw_action *step, int locals) {
    double n = (double)(step->task == GW_BOARD_REDUCE_SCATTER ? step->src.count : step->dst.count);
    switch (step->task) {
    case GW_BOARD_ALLREDUCE: return 2 * locals * n;
    case GW_BOARD_ALLGATHER: return locals * n;
    case GW_BOARD_REDUCE_SCATTER:
    case GW_BOARD_BROADCAST: return (locals + 1) * n;
    default: return 0;
    }
}

static void begin_board(gw_run *run, board *b) {
    const gw_fabric *fabric = run->config.fabric;
    double bytes = b->bytes + fabric->memory_latency * fabric->memory_rate;
    b->path = run->path;
    b->began = run->events.now;
    gw_net_flow_load(&b->flow, bytes);
}

static void leave_board_queue(gw_run *run, part *p) {
    rank_state *rank = &run->rank[p->rank];
    if (--p->board_left > 0) return;
    rank->board_first = p->next;
    p->next = NULL;
    if (!rank->board_first) rank->board_last = NULL;
}

void gw_run_board(gw_run *run, lane *l, const gw_action *step) {
    part *p = l->of;
    rank_state *rank = &run->rank[p->rank];
    if (rank->board_first != p || rank->on_board) return;
    board *b = &run->boards[gw_topology_host(&run->config.topology, p->rank)];
    l->acted++;
    l->on_board = rank->on_board = true;
    leave_board_queue(run, p);
    b->lanes[b->arrived++] = l;
    b->bytes = touched(step, b->locals) * (double)p->op->spec.unit_bytes;
    if (b->arrived == b->locals) begin_board(run, b);
}
