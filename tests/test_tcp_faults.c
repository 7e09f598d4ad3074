/* test_tcp_faults.c - faults of the TCP transport: peers that leave, break off or send nonsense, refusals, and resets
 * in the middle of a transfer (run it under the address sanitizer: no memory may be touched afterwards). */
#include "tcp_mesh.h"

#include <errno.h>
#include <netinet/in.h>

/* One rank whose peer 1 is a plain socket that the test controls. */
static int lone(mesh **m) {
    int fds[2];
    socket_pair(fds, false);
    *m = mesh_open(2, 1, false, false);
    gw_tcp_adopt((*m)->ranks[0].transport, 1, 0, 0, fds[0], false, NULL);
    rank_close(&(*m)->ranks[1]);
    rank_poll(&(*m)->ranks[0]);
    return fds[1];
}

static void write_all(int fd, const uint8_t *data, size_t bytes, size_t at_once) {
    while (bytes > 0) {
        ssize_t took = write(fd, data, bytes < at_once ? bytes : at_once);
        if (took < 0) {
            CHECK(errno == EAGAIN);
            return;
        }
        data += took;
        bytes -= (size_t)took;
    }
}

/* Message index as rank 1 would send it; returns its bytes on the wire. */
static size_t encode(uint8_t *out, gw_frame_kind kind, uint64_t index, size_t bytes) {
    gw_frame frame = {.kind = (uint8_t)kind, .index = index, .length = bytes, .count = bytes * 3 + 1};
    gw_frame_write(&frame, out);
    fill(out + GW_FRAME_BYTES, 1, 0, index, bytes);
    return GW_FRAME_BYTES + bytes;
}

static void expect_loss(mesh *m, gw_status status, const char *detail) {
    mesh_rank *n = &m->ranks[0];
    POLL_UNTIL(m, n->lost[1] > 0);
    for (int i = 0; i < 100; i++) rank_poll(n);
    CHECK_EQ(1, n->lost[1]);
    CHECK_EQ(status, n->lost_status);
    if (!strstr(n->lost_detail, detail)) {
        printf("    \"%s\" does not say \"%s\"\n", n->lost_detail, detail);
        CHECK(false);
    }
}

/* Any cut of the byte stream, and any frames read together. */
static void fragments(void) {
    static const size_t lengths[] = {0, 5, 20000, 0, 0, 33000, 1, 64, 16384, 700, 50000, 0};
    uint8_t *wire = malloc(200000);
    size_t total = 0, count = sizeof lengths / sizeof lengths[0];
    for (size_t i = 0; i < count; i++) total += encode(wire + total, GW_FRAME_DATA, i, lengths[i]);
    for (size_t step = 1; step < 70000; step = step * 3 / 2 + 1) {
        mesh *m;
        int fd = lone(&m);
        for (size_t at = 0; at < total; at += step) {
            write_all(fd, wire + at, total - at < step ? total - at : step, step);
            if (step > 20 || at % 7 == 0) rank_poll(&m->ranks[0]);
        }
        POLL_UNTIL(m, m->ranks[0].arrived[1] == count);
        close(fd);
        mesh_close(m);
    }
    free(wire);
}

static void last_message_then_closed(void) {
    mesh *m = mesh_open(2, 1, false, true);
    mesh_rank *a = &m->ranks[0], *b = &m->ranks[1];
    post(a, 1, 10);
    POLL_UNTIL(m, complete(m));
    for (int i = 0; i < 20; i++) post(b, 0, 1000);
    post(a, 1, 77); /* b never reads it, so a plain close would reset the connection */
    rank_close(b);
    for (int i = 0; i < 3; i++) post(a, 1, 33);
    expect_loss(m, GW_PEER_LOST, "");
    CHECK_EQ(20, a->arrived[1]);
    uint64_t sent = a->sent[1];
    post(a, 1, 5);
    for (int i = 0; i < 10; i++) rank_poll(a);
    CHECK_EQ(sent, a->sent[1]); /* it stays with the engine */
    mesh_close(m);
}

/* Data that the kernel took before close() arrives, though the closing rank has unread data. */
static void close_is_no_reset(void) {
    mesh *m = mesh_open(2, 1, false, true);
    mesh_rank *a = &m->ranks[0], *b = &m->ranks[1];
    post(a, 1, 10);
    POLL_UNTIL(m, complete(m));
    for (int i = 0; i < 20; i++) post(b, 0, 50000);
    post(a, 1, 77);
    uint64_t taken = b->sent[0];
    rank_close(b);
    expect_loss(m, GW_PEER_LOST, "closed by the peer");
    CHECK_EQ(taken, a->arrived[1]);
    mesh_close(m);
}

static void close_is_reported(void) {
    mesh *m;
    close(lone(&m));
    expect_loss(m, GW_PEER_LOST, "connection closed by the peer");
    mesh_close(m);
}

static void closed_in_a_message(void) {
    uint8_t wire[1024];
    for (size_t cut = 1; cut < 200; cut += 60) {
        mesh *m;
        int fd = lone(&m);
        size_t bytes = encode(wire, GW_FRAME_DATA, 0, 200);
        write_all(fd, wire, bytes - cut, bytes);
        close(fd);
        expect_loss(m, GW_PEER_LOST, "in the middle of a message");
        mesh_close(m);
    }
}

static void reset_by_peer(void) {
    mesh *m;
    int fd = lone(&m);
    struct linger hard = {1, 0};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
    close(fd);
    expect_loss(m, GW_PEER_LOST, "reset by peer");
    mesh_close(m);
}

/* The peer answered, then broke the connection; sending notices first, but the answer is still delivered. */
static void answer_before_reset(void) {
    mesh *m;
    int fd = lone(&m);
    mesh_rank *n = &m->ranks[0];
    uint8_t wire[512];
    struct linger hard = {1, 0};
    write_all(fd, wire, encode(wire, GW_FRAME_DATA, 0, 100), 512);
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
    close(fd);
    for (int i = 0; i < 3; i++) post(n, 1, 10);
    expect_loss(m, GW_PEER_LOST, "");
    CHECK_EQ(1, n->arrived[1]);
    mesh_close(m);
}

/* Of two connections one is closed while the other still has data, and then is closed too. */
static void one_of_two_closed(void) {
    mesh *m;
    int fd = lone(&m), more[2];
    mesh_rank *n = &m->ranks[0];
    socket_pair(more, false);
    gw_tcp_adopt(n->transport, 1, 0, 0, more[0], true, NULL);
    rank_poll(n);
    close(fd);
    for (int i = 0; i < 100; i++) rank_poll(n);
    CHECK_EQ(0, n->lost[1]);
    uint8_t wire[512];
    write_all(more[1], wire, encode(wire, GW_FRAME_DATA, 0, 100), 512);
    close(more[1]);
    expect_loss(m, GW_PEER_LOST, "connection closed by the peer");
    CHECK_EQ(1, n->arrived[1]);
    mesh_close(m);
}

static void nonsense(void) {
    uint8_t wire[512];
    for (int way = 0; way < 3; way++) {
        mesh *m;
        int fd = lone(&m);
        size_t bytes = encode(wire, way == 1 ? GW_FRAME_GRANT : GW_FRAME_DATA, 0, 100);
        if (way == 0) memset(wire, 'G', GW_FRAME_BYTES);
        m->ranks[0].deaf = way == 2;
        write_all(fd, wire, bytes, bytes);
        expect_loss(m, GW_PROTOCOL, way == 2 ? "no place here" : "");
        CHECK_EQ(0, m->ranks[0].arrived[1]);
        close(fd);
        mesh_close(m);
    }
}

static void refusals(void) {
    mesh *m = mesh_open(3, 1, false, false);
    mesh_rank *n = &m->ranks[0];
    gw_tcp_refused(n->transport, 2, 0, GW_PEER_LOST, "nobody asked");
    post(n, 1, 10);
    CHECK_EQ(1, m->dials);
    join(m, 2, 0, 0, 0);
    rank_poll(n);
    post(n, 2, 10);
    gw_tcp_refused(n->transport, 2, 0, GW_PEER_LOST, "it has connected to us meanwhile");
    gw_tcp_refused(n->transport, 1, 0, GW_DENIED, "it does not know the job token");
    expect_loss(m, GW_DENIED, "it does not know the job token");
    CHECK_EQ(0, n->lost[2]);
    CHECK_EQ(0, n->sent[1]);
    n->transport->ops->reset(n->transport, 1);
    rank_forget(n);
    post(n, 1, 10);
    gw_tcp_refused(n->transport, 1, 0, GW_DENIED, "of the old generation");
    for (int i = 0; i < 10; i++) rank_poll(n);
    CHECK_EQ(0, n->lost[1]);
    mesh_close(m);
}

/* Stops both in the middle of large messages, frees all posted memory, and continues. */
static void reset_in_mid_transfer(void) {
    mesh *m = mesh_open(2, 1, true, true);
    for (uint32_t generation = 1; generation <= 8; generation++) {
        for (int i = 0; i < 6; i++) {
            for (int r = 0; r < 2; r++) post(&m->ranks[r], 1 - r, 300000);
        }
        for (uint32_t i = 0; i < generation * 3; i++) rank_poll(&m->ranks[i & 1]);
        CHECK(!complete(m));
        for (int r = 0; r < 2; r++) {
            mesh_rank *n = &m->ranks[r];
            n->transport->ops->reset(n->transport, generation);
            rank_forget(n);
        }
        for (int r = 0; r < 2; r++) m->ranks[r].freed = true;
        for (int i = 0; i < 50; i++) rank_poll(&m->ranks[i & 1]);
        for (int r = 0; r < 2; r++) m->ranks[r].freed = false;
    }
    for (int r = 0; r < 2; r++) post(&m->ranks[r], 1 - r, 300000);
    POLL_UNTIL(m, complete(m));
    CHECK_EQ(0, m->ranks[0].lost[1] + m->ranks[1].lost[0]);
    mesh_close(m);
}

static bool is_closed(int fd) {
    char byte;
    for (int i = 0; i < 1000; i++, usleep(1000)) {
        if (recv(fd, &byte, 1, MSG_DONTWAIT) == 0) return true;
    }
    return false;
}

static void generations(void) {
    mesh *m = mesh_open(2, 1, false, false);
    mesh_rank *n = &m->ranks[0];
    int old[2], current[2], later[2];
    socket_pair(old, false);
    socket_pair(current, false);
    socket_pair(later, false);
    n->transport->ops->reset(n->transport, 5);
    gw_tcp_adopt(n->transport, 1, 0, 4, old[0], true, NULL);
    gw_tcp_adopt(n->transport, 1, 0, 6, later[0], false, NULL);
    gw_tcp_adopt(n->transport, 1, 0, 5, current[0], true, NULL);
    rank_poll(n);
    CHECK(is_closed(old[1]));
    uint8_t wire[512];
    size_t bytes = encode(wire, GW_FRAME_DATA, 0, 100);
    write_all(later[1], wire, bytes, bytes);
    for (int i = 0; i < 100; i++) rank_poll(n);
    CHECK_EQ(0, n->arrived[1]); /* not yet */
    n->transport->ops->reset(n->transport, 6);
    CHECK(is_closed(current[1]));
    POLL_UNTIL(m, n->arrived[1] == 1);
    post(n, 1, 10);
    CHECK_EQ(1, n->sent[1]); /* on the connection that waited, without a dial */
    CHECK_EQ(0, m->dials);
    close(old[1]), close(current[1]), close(later[1]);
    mesh_close(m);
}

/* Messages that were not polled, a stream that does not exist, and connections of a later generation: closed, not
 * leaked. */
static void close_takes_everything(void) {
    mesh *m = mesh_open(2, 1, false, false);
    int fds[3][2];
    for (int i = 0; i < 3; i++) {
        socket_pair(fds[i], false);
        gw_tcp_adopt(m->ranks[0].transport, 1, i == 2 ? 7 : 0, i == 0 ? 3 : 0, fds[i][0], true, NULL);
        if (i == 0) rank_poll(&m->ranks[0]);
    }
    gw_tcp_refused(m->ranks[0].transport, 1, 0, GW_DENIED, "too late");
    rank_close(&m->ranks[0]);
    for (int i = 0; i < 3; i++) {
        CHECK(is_closed(fds[i][1]));
        close(fds[i][1]);
    }
    mesh_close(m);
}

static int how_many_open(int (*fds)[2], int count) {
    char byte;
    int open = 0;
    for (int i = 0; i < count; i++) {
        open += recv(fds[i][1], &byte, 1, MSG_DONTWAIT) != 0;
        close(fds[i][1]);
    }
    return open;
}

/* A rank that makes connections without end, of this generation and of later ones, keeps few of them. */
static void surplus_connections_are_refused(void) {
    enum { COUNT = 20 };
    mesh *m = mesh_open(2, 1, false, false);
    mesh_rank *n = &m->ranks[0];
    int now[COUNT][2], later[COUNT][2];
    for (int i = 0; i < COUNT; i++) {
        socket_pair(now[i], false);
        socket_pair(later[i], false);
        gw_tcp_adopt(n->transport, 1, 0, 0, now[i][0], false, NULL);
        gw_tcp_adopt(n->transport, 1, 0, 1 + (uint32_t)i, later[i][0], false, NULL);
        rank_poll(n);
    }
    CHECK_EQ(2, how_many_open(now, COUNT));
    CHECK_EQ(8, how_many_open(later, COUNT));
    POLL_UNTIL(m, n->lost[1] == 1); /* both are closed now */
    mesh_close(m);
}

static void resets_and_ends_with_guards(void) {
    for (mesh_guarded = MESH_SUMMED; mesh_guarded < MESH_GUARDS; mesh_guarded++) {
        last_message_then_closed();
        close_is_no_reset();
        reset_in_mid_transfer();
    }
    mesh_guarded = MESH_CLEAR;
}

TEST_MAIN(CASE(fragments), CASE(last_message_then_closed), CASE(close_is_no_reset), CASE(close_is_reported),
          CASE(closed_in_a_message), CASE(reset_by_peer), CASE(answer_before_reset), CASE(one_of_two_closed),
          CASE(nonsense), CASE(refusals), CASE(reset_in_mid_transfer), CASE(generations), CASE(close_takes_everything),
          CASE(surplus_connections_are_refused), CASE(resets_and_ends_with_guards))
