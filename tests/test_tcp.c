/* test_tcp.c - the TCP transport: every byte, in order, for all sizes, buffers, dials and numbers of streams. */
#include "tcp_mesh.h"

#include <poll.h>
#include <pthread.h>

#include "bootstrap/congestion.h"
#include "bootstrap/listen.h"

static const size_t sizes[] = {0,     1,     63,    64,    65,    1000, 16383,   16384,   16385,
                               32703, 32704, 32705, 65536, 98304, 4,    1048576, 1048577, 3 << 20};
#define SIZES (sizeof sizes / sizeof sizes[0])

static uint32_t next_random(uint32_t *state) { return *state = *state * 1664525u + 1013904223u; }

static void sizes_both_ways(void) {
    mesh *m = mesh_open(2, 1, false, true);
    for (size_t i = 0; i < SIZES; i++) post(&m->ranks[0], 1, sizes[i]);
    POLL_UNTIL(m, complete(m));
    for (size_t i = 0; i < SIZES; i++) {
        post(&m->ranks[0], 1, sizes[i]);
        post(&m->ranks[1], 0, sizes[SIZES - 1 - i]);
    }
    POLL_UNTIL(m, complete(m));
    CHECK_EQ(1, m->dials); /* the second direction uses the same connection */
    mesh_close(m);
}

static void small_socket_buffers(void) {
    mesh *m = mesh_open(2, 1, true, true);
    uint32_t state = 7;
    for (int i = 0; i < 400; i++) {
        uint32_t random = next_random(&state) >> 8;
        size_t bytes = random % 3 == 0 ? random % 60000 : random % 300;
        post(&m->ranks[i & 1], 1 - (i & 1), bytes);
        if (i % 5 == 0) rank_poll(&m->ranks[i / 5 & 1]);
    }
    POLL_UNTIL(m, complete(m));
    mesh_close(m);
}

/* Parts of whole elements, in order, from aligned addresses, whatever small frames were read with them. */
static void payloads_part_by_part(bool tight) {
    mesh *m = mesh_open(2, 1, tight, true);
    uint32_t state = 11;
    for (int r = 0; r < 2; r++) m->ranks[r].takes = true;
    for (size_t i = 0; i < SIZES; i++) post(&m->ranks[0], 1, sizes[i]);
    for (int i = 0; i < 300; i++) {
        uint32_t random = next_random(&state) >> 8;
        post(&m->ranks[i & 1], 1 - (i & 1), random % 3 == 0 ? random % 400000 : random % 300);
        if (i % 7 == 0) rank_poll(&m->ranks[i / 7 & 1]);
    }
    POLL_UNTIL(m, complete(m));
    mesh_close(m);
}

static void parts(void) { payloads_part_by_part(false); }
static void parts_through_small_buffers(void) { payloads_part_by_part(true); }

static void all_to_all(void) {
    mesh *m = mesh_open(MESH_MAX, 1, false, true);
    for (int round = 0; round < 5; round++) {
        for (int a = 0; a < m->world; a++) {
            for (int b = 0; b < m->world; b++) {
                if (a != b) post(&m->ranks[a], b, (size_t)(a * 7919 + b * 104729 + round * 31) % 30000);
            }
        }
        if (round > 2) POLL_UNTIL(m, complete(m));
    }
    CHECK(complete(m));
    mesh_close(m);
}

/* Both dial before either is connected, and get the connections in opposite order: each sends on its own, reads both.
 */
static void simultaneous_dial(void) {
    mesh *m = mesh_open(2, 1, false, false);
    mesh_rank *a = &m->ranks[0], *b = &m->ranks[1];
    post(a, 1, 100);
    post(b, 0, 200000);
    CHECK_EQ(1, m->dials);
    POLL_UNTIL(m, m->dials == 2); /* the higher rank has waited in vain */
    int first[2], second[2];
    socket_pair(first, true);
    socket_pair(second, false);
    gw_tcp_adopt(a->transport, 1, 0, 0, first[0], true, &no_keys);
    gw_tcp_adopt(b->transport, 0, 0, 0, second[0], true, &no_keys);
    POLL_UNTIL(m, a->sent[1] == 1);
    gw_tcp_adopt(a->transport, 1, 0, 0, second[1], false, &no_keys);
    gw_tcp_adopt(b->transport, 0, 0, 0, first[1], false, &no_keys);
    for (int i = 0; i < 50; i++) {
        post(a, 1, (size_t)i * 1001);
        post(b, 0, (size_t)i * 3001);
        rank_poll(i & 1 ? a : b);
    }
    POLL_UNTIL(m, complete(m));
    CHECK_EQ(2, m->dials);
    mesh_close(m);
}

/* One connection serves both directions, so data segments carry the acknowledgements of the other side. */
static void the_lower_rank_dials(void) {
    mesh *m = mesh_open(2, 1, false, true);
    post(&m->ranks[1], 0, 100);
    CHECK(m->ranks[1].transport->ops->arm(m->ranks[1].transport, true)); /* not to sleep: it may have to dial itself */
    rank_poll(&m->ranks[1]);
    CHECK_EQ(0, m->dials);
    post(&m->ranks[0], 1, 100);
    POLL_UNTIL(m, complete(m));
    CHECK_EQ(1, m->dials);
    mesh_close(m);
}

static void peer_connects_first(void) {
    mesh *m = mesh_open(2, 1, false, false);
    join(m, 0, 1, 0, 0);
    rank_poll(&m->ranks[0]);
    rank_poll(&m->ranks[1]);
    post(&m->ranks[1], 0, 5000);
    CHECK_EQ(1, m->ranks[1].sent[0]); /* at once, from within send() */
    post(&m->ranks[0], 1, 5000);
    POLL_UNTIL(m, complete(m));
    CHECK_EQ(0, m->dials);
    mesh_close(m);
}

static void three_streams(void) {
    mesh *m = mesh_open(3, 3, true, true);
    for (int i = 0; i < 60; i++) {
        for (int r = 0; r < 3; r++) post(&m->ranks[r], (r + 1) % 3, sizes[(size_t)i % (SIZES - 3)]);
        rank_poll(&m->ranks[i % 3]);
    }
    POLL_UNTIL(m, complete(m));
    CHECK_EQ(9, m->dials);
    mesh_close(m);
}

static void grant_more(mesh_rank *n, int peer) { grant(n, peer, n->sent[peer], n->sent[peer], 0); }

/* A grant overtakes data that is not partly sent, and does not split a message that is; also where it is sent from
 * within a callback, when the kernel has taken several small messages at once. */
static void grants_overtake_data(void) {
    mesh *m = mesh_open(2, 1, true, true);
    mesh_rank *a = &m->ranks[0], *b = &m->ranks[1];
    for (int i = 0; i < 8; i++) post(a, 1, 1 << 20);
    POLL_UNTIL(m, b->arrived[0] == 1);
    grant(a, 1, 7, 7, 0);
    POLL_UNTIL(m, b->may_send[0] == 7);
    CHECK(b->arrived[0] < 4);
    a->on_sent = grant_more;
    for (int i = 0; i < 200; i++) post(a, 1, (size_t)i * 37);
    POLL_UNTIL(m, complete(m));
    CHECK_EQ(208, b->arrived[0]);
    POLL_UNTIL(m, b->may_send[0] == 208);
    mesh_close(m);
}

/* A peer that does not read does not block the others, and takes no more than the sockets hold. */
static void a_stuck_peer_holds_up_nobody(void) {
    mesh *m = mesh_open(3, 1, true, true);
    mesh_rank *stuck = &m->ranks[1];
    for (int i = 0; i < 10; i++) post(&m->ranks[0], 1, 1 << 20);
    for (int i = 0; i < 200; i++) post(&m->ranks[0], 2, 10000);
    gw_time end = gw_clock_now() + DEADLINE;
    while (m->ranks[2].arrived[0] < 200 && gw_clock_now() < end) {
        rank_poll(&m->ranks[0]);
        rank_poll(&m->ranks[2]);
    }
    CHECK_EQ(200, m->ranks[2].arrived[0]);
    bool busy = true; /* until the sockets are full, on a slow machine a little later, and then sleeping is in order */
    while (busy && gw_clock_now() < end) {
        rank_poll(&m->ranks[0]);
        busy = m->ranks[0].transport->ops->arm(m->ranks[0].transport, true);
    }
    CHECK(!busy);
    CHECK(m->ranks[0].sent[1] < 10 && stuck->arrived[0] == 0);
    POLL_UNTIL(m, complete(m));
    mesh_close(m);
}

static int depth; /* of callbacks: sent() within arrived() is as deep as it goes */

static void post_next(mesh_rank *n, int peer) {
    CHECK(++depth <= 2);
    if (n->posted[peer] < 3000) post(n, peer, n->posted[peer] % 50);
    depth--;
}

/* send() from within sent() and arrived(). */
static void sending_from_callbacks(void) {
    mesh *m = mesh_open(2, 1, false, true);
    for (int r = 0; r < 2; r++) m->ranks[r].on_sent = post_next;
    m->ranks[1].on_arrived = post_next;
    post(&m->ranks[0], 1, 9);
    post(&m->ranks[1], 0, 9);
    POLL_UNTIL(m, complete(m));
    for (int r = 0; r < 2; r++) CHECK_EQ(3000, m->ranks[r].arrived[1 - r]);
    mesh_close(m);
}

/* ---- with threads: pollers that sleep, and another thread that connects ---- */

#define TURNS 100

typedef struct dialler {
    mesh *m;
    int from, to;
} dialler;

static void *connect_later(void *argument) {
    dialler *d = argument;
    usleep(20000);
    join(d->m, d->from, d->to, 0, 0);
    return NULL;
}

static void sleep_until_something(mesh_rank *n) {
    const gw_transport_ops *ops = n->transport->ops;
    if (!ops->arm(n->transport, true)) {
        struct pollfd fd = {.fd = ops->wait_fd(n->transport), .events = POLLIN};
        CHECK(poll(&fd, 1, TEST_PATIENCE_S * 1000) == 1);
    }
    ops->arm(n->transport, false);
}

static void *play(void *argument) {
    mesh_rank *n = argument;
    int peer = 1 - n->rank;
    gw_time end = gw_clock_now() + DEADLINE;
    for (uint64_t turn = 0; turn < TURNS && gw_clock_now() < end; turn++) {
        if (n->rank == 0) post(n, peer, turn * 1000);
        while (n->arrived[peer] <= turn && gw_clock_now() < end) {
            if (!rank_poll(n)) sleep_until_something(n);
        }
        if (n->rank == 1) post(n, peer, turn * 500);
    }
    while (n->sent[peer] < TURNS && gw_clock_now() < end) {
        if (!rank_poll(n)) sleep_until_something(n);
    }
    CHECK_EQ(TURNS, n->arrived[peer]);
    return NULL;
}

static void sleepers_wake(void) {
    mesh *m = mesh_open(2, 1, true, false);
    m->ranks[1].takes = true; /* and waits for the rest of a part */
    pthread_t players[2], managers[2];
    dialler both[2] = {{m, 0, 1}, {m, 1, 0}};
    for (int i = 0; i < 2; i++) pthread_create(&players[i], NULL, play, &m->ranks[i]);
    for (int i = 0; i < 2; i++) pthread_create(&managers[i], NULL, connect_later, &both[i]);
    for (int i = 0; i < 2; i++) pthread_join(managers[i], NULL);
    for (int i = 0; i < 2; i++) pthread_join(players[i], NULL);
    mesh_close(m);
}

/* An idle transport lets its poller sleep: a doorbell that is never cleared would not. */
static void idle_is_quiet(void) {
    mesh *m = mesh_open(2, 1, false, true);
    post(&m->ranks[0], 1, 10);
    POLL_UNTIL(m, complete(m));
    for (int r = 0; r < 2; r++) {
        gw_transport *t = m->ranks[r].transport;
        struct pollfd fd = {.fd = t->ops->wait_fd(t), .events = POLLIN};
        CHECK(!t->ops->poll(t, 0) && !t->ops->arm(t, true));
        CHECK_EQ(0, poll(&fd, 1, 20));
    }
    mesh_close(m);
}

static void socket_options(void) {
    gw_transport *t = NULL;
    int fds[2], on = 0, size = 0;
    char name[17] = "";
    socklen_t int_bytes = sizeof on, name_bytes = 16;
    socket_pair(fds, false);
    gw_tcp_options options = {0, 2, 1, "reno", 150000};
    CHECK_EQ(GW_OK, gw_tcp_open(&t, &options, (gw_sink){0}, NULL, NULL, NULL));
    gw_tcp_adopt(t, 1, 0, 0, fds[0], true, &no_keys);
    CHECK(getsockopt(fds[0], IPPROTO_TCP, TCP_NODELAY, &on, &int_bytes) == 0 && on == 1);
    CHECK(getsockopt(fds[0], SOL_SOCKET, SO_RCVBUF, &size, &int_bytes) == 0 && size == 300000); /* the kernel doubles */
    CHECK(getsockopt(fds[0], IPPROTO_TCP, TCP_CONGESTION, name, &name_bytes) == 0);
    CHECK_STR("reno", name);
    t->ops->close(t);
    close(fds[1]);
}

static void congestion_of(int fd, char name[GW_CONGESTION_BYTES]) {
    socklen_t bytes = GW_CONGESTION_BYTES - 1;
    memset(name, 0, GW_CONGESTION_BYTES);
    CHECK(getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &bytes) == 0);
}

/* A change after connecting is too late: bbr's pacing timer stays. */
static void connections_begin_without_bbr(void) {
    gw_address loopback, bound;
    int listener, dialled, accepted;
    char name[GW_CONGESTION_BYTES], usual[GW_CONGESTION_BYTES], system[GW_CONGESTION_BYTES];
    CHECK(gw_address_literal("127.0.0.1", &loopback));
    CHECK_EQ(GW_OK, gw_listen_open(&loopback, 0, 0, &listener, &bound, NULL));
    CHECK_EQ(0, gw_connect_begin(&bound, &dialled));
    CHECK_EQ(1, poll(&(struct pollfd){.fd = listener, .events = POLLIN}, 1, TEST_PATIENCE_S * 1000));
    CHECK((accepted = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0);
    gw_congestion_default(system);
    const char *expected = strcmp(system, "bbr") == 0 ? "cubic" : system;
    congestion_of(dialled, name);
    CHECK_STR(expected, name);
    congestion_of(accepted, name);
    CHECK_STR(expected, name);
    gw_transport *t = NULL;
    CHECK_EQ(GW_OK, gw_tcp_open(&t, &(gw_tcp_options){0, 2, 1, "system", 0}, (gw_sink){0}, NULL, NULL, NULL));
    gw_tcp_adopt(t, 1, 0, 0, dialled, true, &no_keys);
    congestion_of(dialled, usual);
    CHECK_STR(system, usual);
    t->ops->close(t);
    close(accepted);
    close(listener);
}

static void options_are_checked(void) {
    gw_transport *t = NULL;
    gw_sink sink = {0};
    gw_error error = {0};
    CHECK_EQ(GW_INVALID, gw_tcp_open(&t, &(gw_tcp_options){2, 2, 1, NULL, 0}, sink, NULL, NULL, &error));
    CHECK_STR("tcp: rank 2 is not one of a world of 2", error.text);
    error = (gw_error){0};
    CHECK_EQ(GW_INVALID, gw_tcp_open(&t, &(gw_tcp_options){0, 2, 0, NULL, 0}, sink, NULL, NULL, &error));
    CHECK_STR("tcp: streams is 0; choose 1 to 64", error.text);
    error = (gw_error){0};
    CHECK_EQ(GW_INVALID, gw_tcp_open(&t, &(gw_tcp_options){0, 2, 1, "vegas", 0}, sink, NULL, NULL, &error));
    CHECK_STR("tcp: congestion is \"vegas\"; choose auto, system, cubic, bbr or reno", error.text);
    CHECK(t == NULL);
}

TEST_MAIN(CASE(sizes_both_ways), CASE(small_socket_buffers), CASE(parts), CASE(parts_through_small_buffers),
          CASE(all_to_all), CASE(simultaneous_dial), CASE(the_lower_rank_dials), CASE(peer_connects_first),
          CASE(three_streams), CASE(grants_overtake_data), CASE(a_stuck_peer_holds_up_nobody),
          CASE(sending_from_callbacks), CASE(sleepers_wake), CASE(idle_is_quiet), CASE(socket_options),
          CASE(connections_begin_without_bbr), CASE(options_are_checked))
