/* test_rdma.c - the rdma transport with the providers that run anywhere (tcp, shm), also with the requirements of other
 * providers imposed: every byte of all sizes, by grant and by offer; strangers, resets, deaths, sleeping ranks. */
#include "rdma_mesh.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/wait.h>

#define MOST GW_RDMA_INLINE_BYTES

static const size_t sizes[] = {0,     1,     63, 1000,  MOST - 1, MOST,    MOST + 1, 16384,
                               65536, 98304, 4,  50000, 1048576,  1048577, 3 << 20};
#define SIZES (sizeof sizes / sizeof sizes[0])

static const char *const providers[] = {"tcp", "shm"};

static const gw_rdma_strict demands[] = {
    {0},
    {.basic = true},
    {.local = true},
    {.pinned = true},
    {.local = true, .pinned = true, .basic = true},
    {.no_wait = true},
    {.immediate_bytes = 4},
    {.immediate_bytes = -1},
    {.unordered = true},
    {.message_max = 40000},
    {.message_max = 16384, .immediate_bytes = -1, .local = true},
};
#define DEMANDS (sizeof demands / sizeof demands[0])

static void offered_both_ways(void) {
    for (int p = 0; p < 2; p++) {
        for (size_t d = 0; d < DEMANDS; d++) {
            mesh *m = rdma_mesh(2, providers[p], demands[d], true);
            for (size_t i = 0; i < SIZES; i++) {
                post(&m->ranks[0], 1, sizes[i]);
                post(&m->ranks[1], 0, sizes[SIZES - 1 - i]);
            }
            POLL_UNTIL(m, complete(m));
            gw_rdma_counters count = gw_rdma_count(m->ranks[0].transport);
            CHECK_EQ(8, count.offers);
            CHECK_EQ(8, count.writes);
            CHECK_EQ(0, count.strangers);
            rdma_mesh_close(m);
        }
    }
}

/* Every message is written directly into the granted receive buffer: no offer, no copy, no second registration. */
static void granted_is_not_copied(void) {
    for (int p = 0; p < 2; p++) {
        for (size_t d = 0; d < DEMANDS; d++) {
            mesh *m = rdma_mesh(2, providers[p], demands[d], true);
            mesh_rank *a = &m->ranks[0], *b = &m->ranks[1];
            for (uint64_t round = 0; round < 4; round++) {
                grant(b, 0, round * 6, round * 6 + 6, 100000);
                POLL_UNTIL(m, a->may_send[1] == round * 6 + 6);
                for (int i = 0; i < 6; i++) post(a, 1, 100000);
                POLL_UNTIL(m, complete(m));
            }
            gw_rdma_counters from = gw_rdma_count(a->transport), to = gw_rdma_count(b->transport);
            CHECK_EQ(24, from.writes);
            CHECK_EQ(0, from.offers);
            CHECK_EQ(0, from.copied);
            CHECK_EQ(0, to.copied);
            rdma_mesh_close(m);
        }
    }
}

/* The same memory again and again: registered once, unless registrations pin pages. */
static void registrations_are_kept(void) {
    for (int pinned = 0; pinned < 2; pinned++) {
        mesh *m = rdma_mesh(2, "tcp", (gw_rdma_strict){.pinned = pinned}, true);
        mesh_rank *a = &m->ranks[0], *b = &m->ranks[1];
        static uint8_t memory[200000];
        uint64_t before = gw_rdma_count(b->transport).registered; /* the transport's own */
        for (uint64_t i = 0; i < 10; i++) {
            gw_packet packet = {.frame = {.kind = GW_FRAME_GRANT, .index = i + 1, .count = 600001}, .first = i};
            b->recv_buffer[0][i % RECV_BUFFERS] = memory;
            b->room[0][i % RECV_BUFFERS] = sizeof memory;
            b->keeps = true; /* the memory is not malloc'd */
            b->transport->ops->send(b->transport, 0, &packet);
            POLL_UNTIL(m, a->may_send[1] == i + 1);
            post(a, 1, sizeof memory);
            POLL_UNTIL(m, complete(m));
        }
        gw_rdma_counters count = gw_rdma_count(b->transport);
        CHECK_EQ(pinned ? 10 : 1, count.registered - before);
        CHECK_EQ(pinned ? 0 : 9, count.reused);
        rdma_mesh_close(m);
    }
}

/* Payloads whose length is known only at run time: shorter than the grant, down to inline sizes. */
static void less_than_granted(void) {
    for (int p = 0; p < 2; p++) {
        mesh *m = rdma_mesh(2, providers[p], (gw_rdma_strict){0}, true);
        mesh_rank *a = &m->ranks[0], *b = &m->ranks[1];
        grant(b, 0, 0, 5, 300000);
        POLL_UNTIL(m, a->may_send[1] == 5);
        const size_t lengths[] = {299999, 20000, MOST, 1, 300000};
        for (int i = 0; i < 5; i++) post(a, 1, lengths[i]);
        POLL_UNTIL(m, complete(m));
        CHECK_EQ(0, gw_rdma_count(a->transport).offers);
        CHECK_EQ(3, gw_rdma_count(a->transport).writes);
        rdma_mesh_close(m);
    }
}

/* More receive buffers than one grant message holds, and a grant that crosses the offers of the same messages. */
static void grants_and_offers_cross(void) {
    for (int p = 0; p < 2; p++) {
        mesh *m = rdma_mesh(2, providers[p], (gw_rdma_strict){0}, true);
        mesh_rank *a = &m->ranks[0], *b = &m->ranks[1];
        post(a, 1, 10);
        post(b, 0, 10);
        POLL_UNTIL(m, complete(m));
        for (int i = 0; i < 40; i++) post(a, 1, 70000);
        grant(b, 0, 1, 41, 70000);
        POLL_UNTIL(m, complete(m));
        for (int i = 0; i < 20; i++) post(a, 1, 70000);
        POLL_UNTIL(m, complete(m));
        rdma_mesh_close(m);
    }
}

static void all_to_all(void) {
    for (int p = 0; p < 2; p++) {
        mesh *m = rdma_mesh(6, providers[p], (gw_rdma_strict){0}, true);
        for (int round = 0; round < 5; round++) {
            for (int a = 0; a < m->world; a++)
                for (int b = 0; b < m->world; b++)
                    if (a != b) post(&m->ranks[a], b, (size_t)(a * 7919 + b * 104729 + round * 31) % 50000);
            if (round > 2) POLL_UNTIL(m, complete(m));
        }
        CHECK(complete(m));
        rdma_mesh_close(m);
    }
}

static void post_next(mesh_rank *n, int peer) {
    if (n->posted[peer] < 1000) post(n, peer, n->posted[peer] % 50 * 400);
}

/* send() from within sent() and arrived(). */
static void sending_from_callbacks(void) {
    for (int p = 0; p < 2; p++) {
        mesh *m = rdma_mesh(2, providers[p], (gw_rdma_strict){0}, true);
        for (int r = 0; r < 2; r++) m->ranks[r].on_sent = post_next;
        m->ranks[1].on_arrived = post_next;
        post(&m->ranks[0], 1, 9);
        post(&m->ranks[1], 0, 9);
        POLL_UNTIL(m, complete(m));
        for (int r = 0; r < 2; r++) CHECK_EQ(1000, m->ranks[r].arrived[1 - r]);
        rdma_mesh_close(m);
    }
}

/* A peer that does not poll does not block the others. */
static void a_stuck_peer_holds_up_nobody(void) {
    mesh *m = rdma_mesh(3, "tcp", (gw_rdma_strict){0}, true);
    for (int i = 0; i < 40; i++) post(&m->ranks[0], 1, 1 << 20);
    for (int i = 0; i < 100; i++) post(&m->ranks[0], 2, 10000);
    gw_time end = gw_clock_now() + DEADLINE;
    while (m->ranks[2].arrived[0] < 100 && gw_clock_now() < end) {
        rank_poll(&m->ranks[0]);
        rank_poll(&m->ranks[2]);
    }
    CHECK_EQ(100, m->ranks[2].arrived[0]);
    POLL_UNTIL(m, complete(m));
    rdma_mesh_close(m);
}

/* ---- leaving ---- */

/* The last message arrives though its sender is gone, and only then is the sender lost; each is reported once. */
static void leaving_is_reported_after_the_last_message(void) {
    for (int p = 0; p < 2; p++) {
        mesh *m = rdma_mesh(2, providers[p], (gw_rdma_strict){0}, true);
        mesh_rank *a = &m->ranks[0], *b = &m->ranks[1];
        post(b, 0, 100);
        POLL_UNTIL(m, complete(m));
        for (int i = 0; i < 50; i++) post(a, 1, 5000);
        gw_time end = gw_clock_now() + DEADLINE; /* close() waits for messages in flight, so the peer must poll */
        while (a->sent[1] < 40 && gw_clock_now() < end) {
            rank_poll(a);
            rank_poll(b);
        }
        pthread_t closer = rank_close_start(a);
        end = gw_clock_now() + DEADLINE;
        while (!b->lost[0] && gw_clock_now() < end) rank_poll(b);
        CHECK_EQ(1, b->lost[0]);
        CHECK_EQ(50, b->arrived[0]);
        CHECK_EQ(GW_PEER_LOST, b->lost_status);
        CHECK_STR("connection closed by the peer", b->lost_detail);
        pthread_join(closer, NULL);
        for (int i = 0; i < 1000; i++) rank_poll(b);
        CHECK_EQ(1, b->lost[0]);
        rdma_mesh_close(m);
    }
}

/* Links are dropped in mid transfer, memory is not touched afterwards, and the next generation starts clean. */
static void reset_begins_a_new_generation(void) {
    for (int p = 0; p < 2; p++) {
        mesh *m = rdma_mesh(3, providers[p], (gw_rdma_strict){.local = p == 0}, true);
        for (uint32_t generation = 1; generation < 4; generation++) {
            for (int a = 0; a < 3; a++)
                for (int i = 0; i < 10; i++) post(&m->ranks[a], (a + 1) % 3, (size_t)i * 30000);
            for (int i = 0; i < (int)generation * 20; i++)
                for (int r = 0; r < 3; r++) rank_poll(&m->ranks[r]);
            for (int r = 0; r < 3; r++) {
                m->ranks[r].transport->ops->reset(m->ranks[r].transport, generation);
                rank_forget(&m->ranks[r]); /* the sanitizer sees a late access */
            }
        }
        for (int a = 0; a < 3; a++)
            for (size_t i = 0; i < SIZES; i++) post(&m->ranks[a], (a + 1) % 3, sizes[i]);
        POLL_UNTIL(m, complete(m));
        for (int r = 0; r < 3; r++) CHECK_EQ(0, m->ranks[r].lost[(r + 1) % 3] + m->ranks[r].lost[(r + 2) % 3]);
        rdma_mesh_close(m);
    }
}

/* One side resets in the middle of a write: neither is harmed, and the next generation starts clean. The write is
 * longer than sockets and queues can hold. */
static void half_written(const char *provider, gw_rdma_strict strict, int leaves) {
    const size_t bytes = 24 << 20;
    mesh *m = rdma_mesh(2, provider, strict, true);
    mesh_rank *a = &m->ranks[0], *b = &m->ranks[1], *first = &m->ranks[leaves], *second = &m->ranks[1 - leaves];
    grant(b, 0, 0, 1, bytes);
    uint8_t *recv_buffer = b->recv_buffer[0][0], untouched = (uint8_t)~byte_of(0, 1, 0, 0);
    *recv_buffer = untouched;
    POLL_UNTIL(m, a->may_send[1] == 1);
    post(a, 1, bytes);
    POLL_UNTIL(m, *recv_buffer != untouched);
    CHECK_EQ(0, b->arrived[0]);
    first->transport->ops->reset(first->transport, 1);
    rank_forget(first);
    gw_time end = gw_clock_now() + DEADLINE;
    while (!second->lost[leaves] && gw_clock_now() < end) rank_poll(second);
    CHECK_EQ(1, second->lost[leaves]);
    second->transport->ops->reset(second->transport, 1);
    rank_forget(second);
    post(a, 1, 100000);
    post(b, 0, 100000);
    POLL_UNTIL(m, complete(m));
    rdma_mesh_close(m);
}

/* Not with shm: within one process its endpoints share one mapping, which the other still uses. */
static void broken_in_the_middle(void) {
    for (int leaves = 0; leaves < 2; leaves++)
        for (int unordered = 0; unordered < 2; unordered++)
            half_written("tcp", (gw_rdma_strict){.unordered = unordered}, leaves);
}

/* One rank resets earlier than the other: its messages wait until the other has reached that generation. */
static void generations_wait_for_each_other(void) {
    mesh *m = rdma_mesh(2, "tcp", (gw_rdma_strict){0}, true);
    mesh_rank *a = &m->ranks[0], *b = &m->ranks[1];
    post(a, 1, 50000);
    POLL_UNTIL(m, complete(m));
    a->transport->ops->reset(a->transport, 1);
    rank_forget(a);
    post(a, 1, 60000);
    gw_time end = gw_clock_now() + DEADLINE;
    while (!b->lost[0] && gw_clock_now() < end) {
        rank_poll(a);
        rank_poll(b);
    }
    CHECK_EQ(1, b->lost[0]); /* the old connection ended */
    b->transport->ops->reset(b->transport, 1);
    rank_forget(b);
    POLL_UNTIL(m, complete(m));
    CHECK_EQ(1, b->arrived[0]);
    rdma_mesh_close(m);
}

static void no_recv_buffer_is_a_loss(void) {
    mesh *m = rdma_mesh(2, "tcp", (gw_rdma_strict){0}, true);
    mesh_rank *a = &m->ranks[0], *b = &m->ranks[1];
    b->deaf = true;
    post(a, 1, 50000);
    POLL_UNTIL(m, b->lost[0] == 1);
    CHECK_EQ(GW_PROTOCOL, b->lost_status);
    CHECK_STR("it offered 50000 bytes that have no place here", b->lost_detail);
    rdma_mesh_close(m);
}

static void a_refused_peer_is_lost(void) {
    mesh *m = rdma_mesh(2, "tcp", (gw_rdma_strict){0}, false);
    mesh_rank *a = &m->ranks[0];
    post(a, 1, 10);
    CHECK_EQ(1, m->dials);
    a->transport->ops->refused(a->transport, 1, 0, GW_TIMEOUT, "nobody there");
    POLL_UNTIL(m, a->lost[1] == 1);
    CHECK_EQ(GW_TIMEOUT, a->lost_status);
    CHECK_STR("nobody there", a->lost_detail);
    rdma_mesh_close(m);
}

/* A peer that greets without an address, or again. */
static void a_second_greeting_is_refused(void) {
    for (int known = 0; known < 2; known++) {
        mesh *m = rdma_mesh(2, "tcp", (gw_rdma_strict){0}, true);
        mesh_rank *a = &m->ranks[0];
        if (known) post(&m->ranks[1], 0, 10);
        if (known) POLL_UNTIL(m, complete(m));
        int fds[2];
        uint8_t hello[GW_FRAME_BYTES];
        socket_pair(fds, false);
        mesh_adopt(a, 1, 0, 0, fds[0], false);
        gw_frame_write(&(gw_frame){.kind = GW_FRAME_DATA, .root = -1}, hello);
        CHECK_EQ(sizeof hello, send(fds[1], hello, sizeof hello, 0));
        POLL_UNTIL(m, a->lost[1] == 1);
        CHECK_EQ(GW_PROTOCOL, a->lost_status);
        CHECK_STR("it introduced itself without an address, or twice", a->lost_detail);
        close(fds[1]);
        rdma_mesh_close(m);
    }
}

static void providers_must_agree(void) {
    mesh *m = rdma_mesh(2, "tcp", (gw_rdma_strict){0}, true);
    mesh_rank *a = &m->ranks[0], *b = &m->ranks[1];
    rank_close(b);
    rdma_rank_open(b, "shm", (gw_rdma_strict){0});
    post(a, 1, 10);
    POLL_UNTIL(m, a->lost[1] == 1 && b->lost[0] == 1);
    CHECK_EQ(GW_MISMATCH, a->lost_status);
    CHECK_STR("it uses libfabric's provider shm, and this rank tcp;ofi_rxm: choose one with "
              "transport=rdma:provider=NAME",
              a->lost_detail);
    rdma_mesh_close(m);
}

/* ---- with threads: pollers that sleep ---- */

#define TURNS 60

static void sleep_until_something(mesh_rank *n) {
    const gw_transport_ops *ops = n->transport->ops;
    if (!ops->arm(n->transport, true) && !rank_poll(n)) {
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
        while (n->arrived[peer] <= turn && gw_clock_now() < end)
            if (!rank_poll(n)) sleep_until_something(n);
        if (n->rank == 1) post(n, peer, turn * 500);
    }
    while (n->sent[peer] < TURNS && gw_clock_now() < end)
        if (!rank_poll(n)) sleep_until_something(n);
    CHECK_EQ(TURNS, n->arrived[peer]);
    return NULL;
}

static void sleepers_wake(void) {
    for (int p = 0; p < 3; p++) {
        mesh *m = rdma_mesh(2, p == 1 ? "shm" : "tcp", (gw_rdma_strict){.no_wait = p == 2}, false);
        pthread_t players[2];
        for (int i = 0; i < 2; i++) pthread_create(&players[i], NULL, play, &m->ranks[i]);
        usleep(5000);
        join(m, 0, 1, 0, 0);
        for (int i = 0; i < 2; i++) pthread_join(players[i], NULL);
        rdma_mesh_close(m);
    }
}

/* ---- strangers ---- */

#include "transport/rdma/rdma_internal.h"

/* A stranger that finds the endpoint can send to it and write immediate data; neither reaches the engine. */
static void strangers_are_ignored(void) {
    mesh *m = rdma_mesh(2, "tcp", (gw_rdma_strict){0}, true);
    rdma *victim = (rdma *)m->ranks[0].transport;
    post(&m->ranks[1], 0, 100000);
    POLL_UNTIL(m, complete(m));
    gw_rdma_fabric stranger;
    gw_address loopback;
    CHECK(gw_address_literal("127.0.0.1", &loopback));
    gw_rdma_options options = {.world = 2, .provider = "tcp", .address = &loopback};
    CHECK_EQ(GW_OK, gw_rdma_fabric_open(&stranger, &options, NULL));
    CHECK_EQ(GW_OK, gw_rdma_fabric_start(&stranger, NULL));
    fi_addr_t address;
    CHECK_EQ(1, fi_av_insert(stranger.peers, victim->fabric.address, 1, &address, 0, NULL));
    gw_rdma_message message = {.kind = GW_RDMA_FRAME, .from = 1, .frame = {.kind = GW_FRAME_CREDIT, .root = -1}};
    uint8_t bytes[GW_RDMA_MESSAGE_BYTES], guess[GW_RDMA_COOKIE_BYTES] = {0};
    size_t length = gw_rdma_message_write(&message, guess, bytes);
    struct fi_context2 contexts[3];
    int said = 0;
    gw_time end = gw_clock_now() + DEADLINE;
    while ((said < 3 || victim->counters.strangers < 2) && gw_clock_now() < end) {
        struct fi_cq_data_entry entry;
        ssize_t result = -FI_EAGAIN;
        if (said == 0) result = fi_send(stranger.endpoint, bytes, length, NULL, address, &contexts[0]);
        if (said == 1) result = fi_send(stranger.endpoint, bytes, 5, NULL, address, &contexts[1]);
        if (said == 2) result = fi_writedata(stranger.endpoint, bytes, 0, NULL, 1, address, 0, 0, &contexts[2]);
        if (result != -FI_EAGAIN) said++;
        fi_cq_read(stranger.completions, &entry, 1);
        rank_poll(&m->ranks[0]);
    }
    CHECK(victim->counters.strangers >= 2);
    post(&m->ranks[1], 0, 100000);
    post(&m->ranks[1], 0, 10);
    POLL_UNTIL(m, complete(m));
    CHECK_EQ(0, m->ranks[0].lost[1]);
    gw_rdma_fabric_close(&stranger);
    rdma_mesh_close(m);
}

/* Files in /dev/shm of a killed process with the same number as this one are no obstacle. */
static void remains_of_a_killed_process_are_removed(void) {
    char path[64];
    for (int i = 0; i < 400; i++) {
        snprintf(path, sizeof path, "/dev/shm/%d:%d:%d", (int)getpid(), (int)getuid(), i);
        int fd = open(path, O_CREAT | O_EXCL | O_WRONLY, 0600);
        CHECK(fd >= 0 && ftruncate(fd, 1 << 20) == 0);
        close(fd);
    }
    mesh *m = rdma_mesh(2, "shm", (gw_rdma_strict){0}, true);
    post(&m->ranks[0], 1, 100000);
    POLL_UNTIL(m, complete(m));
    CHECK(access(path, F_OK) != 0);
    rdma_mesh_close(m);
}

static void options_are_checked(void) {
    gw_transport *t = NULL;
    gw_sink sink = {0};
    gw_error error = {0};
    gw_rdma_options options = {.rank = 2, .world = 2, .provider = "tcp"};
    CHECK_EQ(GW_INVALID, gw_rdma_open(&t, &options, sink, NULL, NULL, &error));
    CHECK_STR("rdma: rank 2 is not one of a world of 2", error.text);
    error = (gw_error){0};
    options = (gw_rdma_options){.rank = 0, .world = 2, .provider = "pigeons"};
    CHECK_EQ(GW_UNSUPPORTED, gw_rdma_open(&t, &options, sink, NULL, NULL, &error));
    CHECK(strstr(error.text, "rdma: libfabric has no provider \"pigeons\" that works here (") == error.text);
    CHECK(t == NULL);
}

/* Sums that are right are not seen, whatever a provider demands. */
static void with_checksums(void) {
    mesh_guarded = MESH_SUMMED;
    offered_both_ways(), grants_and_offers_cross();
    mesh_guarded = MESH_CLEAR;
}

int main(int argc, char **argv) {
    static const test_case cases[] = {CASE(offered_both_ways),
                                      CASE(granted_is_not_copied),
                                      CASE(registrations_are_kept),
                                      CASE(less_than_granted),
                                      CASE(grants_and_offers_cross),
                                      CASE(all_to_all),
                                      CASE(sending_from_callbacks),
                                      CASE(a_stuck_peer_holds_up_nobody),
                                      CASE(leaving_is_reported_after_the_last_message),
                                      CASE(reset_begins_a_new_generation),
                                      CASE(broken_in_the_middle),
                                      CASE(generations_wait_for_each_other),
                                      CASE(no_recv_buffer_is_a_loss),
                                      CASE(a_refused_peer_is_lost),
                                      CASE(a_second_greeting_is_refused),
                                      CASE(providers_must_agree),
                                      CASE(sleepers_wake),
                                      CASE(remains_of_a_killed_process_are_removed),
                                      CASE(strangers_are_ignored),
                                      CASE(with_checksums),
                                      CASE(options_are_checked)};
    rdma_or_skip();
    return test_main(argc, argv, cases, (int)(sizeof cases / sizeof cases[0]));
}
