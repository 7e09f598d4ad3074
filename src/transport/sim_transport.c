/* sim_transport.c - see sim_transport.h. Events in a binary heap by (time, number): O(log n) each. */
#include "transport/sim_transport.h"
#include "transport/transport_registry.h"

#include <stdlib.h>
#include <string.h>

typedef enum event_kind {
    EVENT_LEAVES,
    EVENT_ARRIVES,
    EVENT_MESSAGE,
    EVENT_HANG_UP,
    EVENT_TIMER,
    EVENT_DIAL,
    EVENT_CONNECTED,
    EVENT_REFUSED
} event_kind;

typedef struct event {
    gw_time at;
    uint64_t number; /* orders events of the same time */
    event_kind kind;
    int from, to;
    uint32_t generation; /* of the sender's links, for frames */
    gw_packet *packet;   /* LEAVES */
    gw_frame frame;      /* ARRIVES */
    uint8_t *bytes;      /* ARRIVES, MESSAGE: owned */
    size_t length;
} event;

typedef struct port {
    gw_transport transport; /* first */
    gw_sim_net *net;
    int rank;
    bool open, alive;
    bool shut; /* the rank no longer listens: dials are refused */
    bool *cut; /* world entries: ranks to and from which nothing passes; NULL: none */
    uint32_t generation;
    double slowness;
    gw_time busy_until; /* the outgoing port */
    gw_time paused_until;
    gw_time *last_to; /* world entries: when the last frame to each peer arrives */
    uint64_t *sent;   /* world entries: bytes of payloads to each peer */
    bool *linked;     /* world entries: a frame has passed to or from this peer, so its hang-up is seen */
} port;

struct gw_sim_net {
    gw_sim_config config;
    gw_sim_events events;
    gw_time now;
    uint64_t numbers;
    gw_rng rng;
    port *ports;
    int *side; /* by rank: its side of the partition */
    event **heap;
    size_t used, room;
};

/* The heap. */

static bool before(const event *a, const event *b) { return a->at != b->at ? a->at < b->at : a->number < b->number; }

static void push(gw_sim_net *net, event *e) {
    if (net->used == net->room) {
        size_t room = net->room ? 2 * net->room : 1024;
        event **grown = realloc(net->heap, room * sizeof *grown);
        if (!grown) abort(); /* the simulator cannot go on without memory */
        net->heap = grown;
        net->room = room;
    }
    e->number = net->numbers++;
    size_t i = net->used++;
    for (; i > 0 && before(e, net->heap[(i - 1) / 2]); i = (i - 1) / 2) net->heap[i] = net->heap[(i - 1) / 2];
    net->heap[i] = e;
}

static event *pop(gw_sim_net *net) {
    event *top = net->heap[0], *last = net->heap[--net->used];
    size_t i = 0;
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= net->used) break;
        if (child + 1 < net->used && before(net->heap[child + 1], net->heap[child])) child++;
        if (!before(net->heap[child], last)) break;
        net->heap[i] = net->heap[child];
        i = child;
    }
    if (net->used) net->heap[i] = last;
    return top;
}

static event *make(gw_sim_net *net, event_kind kind, gw_time at, int from, int to) {
    event *e = calloc(1, sizeof *e);
    if (!e) abort();
    *e = (event){.at = at > net->now ? at : net->now, .kind = kind, .from = from, .to = to};
    return e;
}

/* The transport. */

static bool cut(const gw_sim_net *net, int a, int b) {
    return net->side[a] != net->side[b] || (net->ports[a].cut && net->ports[a].cut[b]);
}

static gw_time random_delay(gw_sim_net *net) {
    return net->config.latency + (net->config.jitter ? gw_rng_below(&net->rng, net->config.jitter) : 0);
}

static void port_send(gw_transport *transport, int peer, gw_packet *packet) {
    port *self = (port *)transport;
    gw_sim_net *net = self->net;
    double seconds = (double)(GW_FRAME_BYTES + packet->frame.length) / net->config.bytes_per_second * self->slowness;
    gw_time begin = self->busy_until > net->now ? self->busy_until : net->now;
    self->busy_until = begin + (gw_time)(seconds * (double)GW_SECOND);
    event *e = make(net, EVENT_LEAVES, self->busy_until, self->rank, peer);
    e->packet = packet;
    e->generation = self->generation;
    push(net, e);
    self->sent[peer] += packet->frame.length;
}

static void port_release(gw_transport *transport, int peer, uint64_t ticket) {
    (void)transport;
    (void)peer;
    (void)ticket;
}

static bool port_poll(gw_transport *transport, gw_time now) {
    (void)transport;
    (void)now;
    return false; /* the network delivers from gw_sim_step */
}

static int port_wait_fd(gw_transport *transport) {
    (void)transport;
    return -1;
}

static bool port_arm(gw_transport *transport, bool sleeping) {
    (void)transport;
    (void)sleeping;
    return false;
}

static void port_reset(gw_transport *transport, uint32_t generation) {
    port *self = (port *)transport;
    self->generation = generation;
    memset(self->linked, 0, (size_t)self->net->config.world * sizeof *self->linked);
}

static void port_close(gw_transport *transport) { (void)transport; }

static const gw_transport_ops sim_ops = {.name = "sim",
                                         .ordered = true,
                                         .hangs_up = true,
                                         .send = port_send,
                                         .release = port_release,
                                         .poll = port_poll,
                                         .wait_fd = port_wait_fd,
                                         .arm = port_arm,
                                         .reset = port_reset,
                                         .close = port_close};

gw_status gw_sim_open(gw_sim_net **out, const gw_sim_config *config, const gw_sim_events *events, gw_error *error) {
    size_t world = (size_t)config->world;
    gw_sim_net *net = calloc(1, sizeof *net);
    if (!net) return gw_fail(error, GW_MEMORY, "out of memory for a network of %d ranks", config->world);
    net->config = *config;
    net->events = *events;
    net->rng = gw_rng_make(config->seed, 1);
    net->ports = calloc(world, sizeof *net->ports);
    net->side = calloc(world, sizeof *net->side);
    if (!net->ports || !net->side) goto memory;
    for (size_t r = 0; r < world; r++) {
        net->ports[r] = (port){.transport = {.ops = &sim_ops}, .net = net, .rank = (int)r, .alive = true, .slowness = 1,
                               .last_to = calloc(world, sizeof(gw_time)), .linked = calloc(world, sizeof(bool)),
                               .sent = calloc(world, sizeof(uint64_t))};
        if (!net->ports[r].last_to || !net->ports[r].linked || !net->ports[r].sent) goto memory;
    }
    *out = net;
    return GW_OK;
memory:
    gw_sim_close(net);
    return gw_fail(error, GW_MEMORY, "out of memory for a network of %d ranks", config->world);
}

void gw_sim_close(gw_sim_net *net) {
    if (!net) return;
    while (net->used) {
        event *e = pop(net);
        free(e->bytes);
        free(e);
    }
    for (int r = 0; net->ports && r < net->config.world; r++) {
        free(net->ports[r].last_to);
        free(net->ports[r].linked);
        free(net->ports[r].sent);
        free(net->ports[r].cut);
    }
    free(net->ports);
    free(net->side);
    free(net->heap);
    free(net);
}

gw_transport *gw_sim_transport(gw_sim_net *net, int rank, gw_sink sink) {
    net->ports[rank].transport.sink = sink;
    net->ports[rank].open = true;
    return &net->ports[rank].transport;
}

gw_time gw_sim_now(const gw_sim_net *net) { return net->now; }
uint64_t gw_sim_sent_bytes(const gw_sim_net *net, int from, int to) { return net->ports[from].sent[to]; }

bool gw_sim_alive(const gw_sim_net *net, int rank) { return net->ports[rank].alive; }

/* Events. */

static gw_time arrival_time(gw_sim_net *net, port *from, int to) {
    gw_time at = net->now + random_delay(net);
    if (at < from->last_to[to]) at = from->last_to[to]; /* a pair keeps its order */
    from->last_to[to] = at;
    return at;
}

static void leaves(gw_sim_net *net, event *e) {
    port *from = &net->ports[e->from];
    if (!from->alive || e->generation != from->generation) return;
    from->linked[e->to] = net->ports[e->to].linked[e->from] = true;
    if (!cut(net, e->from, e->to)) {
        event *arrival = make(net, EVENT_ARRIVES, arrival_time(net, from, e->to), e->from, e->to);
        arrival->frame = e->packet->frame;
        arrival->generation = e->generation;
        arrival->length = (size_t)e->packet->frame.length;
        if (arrival->length) {
            arrival->bytes = malloc(arrival->length);
            if (!arrival->bytes) abort();
            memcpy(arrival->bytes, e->packet->data, arrival->length);
        }
        push(net, arrival);
    }
    from->transport.sink.sent(from->transport.sink.ctx, e->to, e->packet);
    net->events.moved(net->events.ctx, e->from);
}

static void arrives(gw_sim_net *net, event *e) {
    port *to = &net->ports[e->to];
    if (e->generation != to->generation || cut(net, e->from, e->to)) return;
    gw_sink *sink = &to->transport.sink;
    const void *data = NULL;
    if (e->length) {
        void *recv_buffer = sink->recv_buffer(sink->ctx, e->from, &e->frame);
        if (recv_buffer) memcpy(recv_buffer, e->bytes, e->length);
        else sink->lost(sink->ctx, e->from, GW_PROTOCOL, "it sent what was not expected");
        data = recv_buffer;
    }
    if (data || !e->length) sink->arrived(sink->ctx, e->from, &e->frame, data, 0);
    net->events.moved(net->events.ctx, e->to);
}

static void hang_up(gw_sim_net *net, event *e) {
    port *to = &net->ports[e->to];
    if (to->linked[e->from]) to->transport.sink.lost(to->transport.sink.ctx, e->from, GW_PEER_LOST, "connection reset");
    net->events.hang_up(net->events.ctx, e->to, e->from);
    net->events.moved(net->events.ctx, e->to);
}

static void dialled(gw_sim_net *net, event *e) {
    port *to = &net->ports[e->to];
    if (cut(net, e->from, e->to)) return;
    bool listens = to->alive && !to->shut;
    push(net, make(net, listens ? EVENT_CONNECTED : EVENT_REFUSED, arrival_time(net, to, e->from), e->to, e->from));
    if (listens) net->events.connected(net->events.ctx, e->to, e->from);
}

/* A paused rank's events wait for it, in their order. */
static bool deferred(gw_sim_net *net, event *e) {
    int at = e->kind == EVENT_LEAVES ? e->from : e->to;
    if (net->ports[at].paused_until <= net->now) return false;
    e->at = net->ports[at].paused_until;
    push(net, e);
    return true;
}

bool gw_sim_step(gw_sim_net *net) {
    if (!net->used) return false;
    event *e = pop(net);
    net->now = e->at;
    if (deferred(net, e)) return true;
    if (e->kind == EVENT_LEAVES) leaves(net, e);
    else if (e->kind == EVENT_DIAL) dialled(net, e);
    else if (net->ports[e->to].alive) {
        if (e->kind == EVENT_ARRIVES) arrives(net, e);
        else if (e->kind == EVENT_HANG_UP) hang_up(net, e);
        else if (e->kind == EVENT_TIMER) net->events.timer(net->events.ctx, e->to);
        else if (cut(net, e->from, e->to)) {
        } else if (e->kind == EVENT_CONNECTED) net->events.connected(net->events.ctx, e->to, e->from);
        else if (e->kind == EVENT_REFUSED) net->events.refused(net->events.ctx, e->to, e->from);
        else net->events.message(net->events.ctx, e->from, e->to, e->bytes, e->length);
    }
    free(e->bytes);
    free(e);
    return true;
}

void gw_sim_message(gw_sim_net *net, int from, int to, const void *bytes, size_t length) {
    if (!net->ports[from].alive) return;
    event *e = make(net, EVENT_MESSAGE, arrival_time(net, &net->ports[from], to), from, to);
    e->bytes = malloc(length);
    if (!e->bytes) abort();
    memcpy(e->bytes, bytes, length);
    e->length = length;
    push(net, e);
}

void gw_sim_dial(gw_sim_net *net, int from, int to) {
    if (net->ports[from].alive) push(net, make(net, EVENT_DIAL, arrival_time(net, &net->ports[from], to), from, to));
}

void gw_sim_shut(gw_sim_net *net, int rank) { net->ports[rank].shut = true; }

void gw_sim_timer(gw_sim_net *net, int rank, gw_time at) { push(net, make(net, EVENT_TIMER, at, rank, rank)); }

void gw_sim_kill(gw_sim_net *net, int rank) {
    port *dead = &net->ports[rank];
    if (!dead->alive) return;
    dead->alive = false;
    for (int r = 0; r < net->config.world; r++)
        if (r != rank && !cut(net, rank, r)) push(net, make(net, EVENT_HANG_UP, arrival_time(net, dead, r), rank, r));
}

void gw_sim_partition(gw_sim_net *net, const bool *side) {
    for (int r = 0; r < net->config.world; r++) net->side[r] = side[r];
}

static void cut_one(gw_sim_net *net, port *self, int other) {
    if (!self->cut) self->cut = calloc((size_t)net->config.world, sizeof *self->cut);
    if (!self->cut) abort();
    self->cut[other] = true;
}

void gw_sim_cut(gw_sim_net *net, int a, int b) {
    cut_one(net, &net->ports[a], b);
    cut_one(net, &net->ports[b], a);
}

void gw_sim_slow(gw_sim_net *net, int rank, double factor) { net->ports[rank].slowness = factor; }
void gw_sim_pause(gw_sim_net *net, int rank, gw_time until) { net->ports[rank].paused_until = until; }

const gw_transport_type gw_transport_sim = {
    .technique = {.name = "sim", .about = "simulated links; only in the simulator"},
    .simulated = true,
};
