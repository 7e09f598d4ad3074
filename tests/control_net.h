/* control_net.h - for tests of the control plane: N gw_control objects in one process, joined by a queue of packets and
 * driven by a virtual clock. Ranks can die and the network can be cut. */
#ifndef GW_TEST_CONTROL_NET_H
#define GW_TEST_CONTROL_NET_H

#include "test.h"

#include "control/control.h"

#define WORLD_MAX 64
#define DEADLINE (10 * GW_SECOND)
#define QUEUE 200000

typedef enum packet_kind { MESSAGE, HANG_UP, DIAL, CONNECTED, REFUSED } packet_kind;

typedef struct packet {
    packet_kind kind;
    int from, to;
    gw_control_message message;
} packet;

/* Messages are delivered in the order sent. */
static struct {
    int world;
    gw_control *rank[WORLD_MAX];
    bool dead[WORLD_MAX];
    int side[WORLD_MAX];  /* of a cut network: nothing passes between two sides */
    int lives[WORLD_MAX]; /* messages of the agreement that it sends before it dies; 0: no limit */
    gw_error reported[WORLD_MAX];
    char slow[WORLD_MAX][700];
    int gone[WORLD_MAX]; /* bit 0: a rank was lost, bit 1: a rank left */
    packet *queue;
    int first, used;
    gw_time now;
    uint64_t delivered;
} net;

static void put(packet p) {
    if (net.used < QUEUE) net.queue[net.used++] = p;
}

static void die(int rank) {
    net.dead[rank] = true;
    for (int r = 0; r < net.world; r++)
        if (r != rank) put((packet){.kind = HANG_UP, .from = rank, .to = r});
}

static void on_send(void *ctx, int neighbour, const gw_control_message *message) {
    int from = (int)(intptr_t)ctx;
    if (net.dead[from]) return;
    put((packet){.from = from, .to = neighbour, .message = *message});
    if (message->kind >= GW_CONTROL_SHRINK && net.lives[from] && --net.lives[from] == 0) die(from);
}

static void on_dial(void *ctx, int rank) { put((packet){.kind = DIAL, .from = (int)(intptr_t)ctx, .to = rank}); }

static void on_returned(void *ctx, int rank) { (void)ctx, (void)rank; }

static void on_aborted(void *ctx, const gw_error *error) { net.reported[(intptr_t)ctx] = *error; }

static void on_gone(void *ctx, int rank, bool left, const char *detail) {
    (void)rank, (void)detail;
    net.gone[(intptr_t)ctx] |= left ? 2 : 1;
}

static void on_slow(void *ctx, const char *sentence) {
    snprintf(net.slow[(intptr_t)ctx], sizeof net.slow[0], "%s", sentence);
}

static const char *host_name(void *ctx, int rank) {
    (void)ctx, (void)rank;
    return "here";
}

static void begin_by(int world, bool any_side) {
    packet *queue = net.queue ? net.queue : malloc(QUEUE * sizeof *queue);
    memset(&net, 0, sizeof net);
    net.queue = queue;
    net.world = world;
    for (int r = 0; r < world; r++) {
        gw_control_config config = {.rank = r, .world = world, .deadline = DEADLINE, .any_side = any_side};
        gw_control_events events = {.ctx = (void *)(intptr_t)r, .send = on_send, .dial = on_dial, .aborted = on_aborted,
                                    .gone = on_gone, .returned = on_returned, .slow = on_slow, .host_name = host_name};
        CHECK_EQ(GW_OK, gw_control_open(&net.rank[r], &config, &events, 0, NULL));
    }
}

static void begin(int world) { begin_by(world, false); }

static void end(void) {
    for (int r = 0; r < net.world; r++) gw_control_close(net.rank[r]);
}

static void deliver(const packet *p) {
    gw_control *to = net.rank[p->to];
    if (net.side[p->from] != net.side[p->to]) return;
    if (p->kind == DIAL) {
        put((packet){.kind = net.dead[p->to] ? REFUSED : CONNECTED, .from = p->to, .to = p->from});
        if (!net.dead[p->to]) gw_control_link_up(to, p->from, net.now);
        return;
    }
    if (net.dead[p->to]) return;
    net.delivered++;
    if (p->kind == MESSAGE) gw_control_receive(to, p->from, &p->message, net.now);
    else if (p->kind == HANG_UP) gw_control_link_lost(to, p->from, "connection reset", net.now);
    else if (p->kind == REFUSED) gw_control_died(to, p->from, "its port is closed", net.now);
    else gw_control_link_up(to, p->from, net.now);
}

static void deliver_all(void) {
    for (; net.first < net.used; net.first++) {
        packet p = net.queue[net.first];
        deliver(&p);
    }
    net.first = net.used = 0;
}

static void pass(gw_time time) {
    net.now += time;
    for (int r = 0; r < net.world; r++)
        if (!net.dead[r]) gw_control_poll(net.rank[r], net.now);
    deliver_all();
}

static void lose(int rank) {
    die(rank);
    deliver_all();
}

#endif
