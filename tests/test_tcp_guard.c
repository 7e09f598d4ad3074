/* test_tcp_guard.c - the TCP transport under attack: an exchange is recorded, changed, and played to a rank. Every bit
 * flipped, every record left out, repeated or swapped, every cut: nothing wrong is ever delivered. And a peer that lies
 * under valid tags, and what batches of records put on the wire. */
#include "tcp_mesh.h"
#include "transport/tcp/tcp_batch.h"

#define WIRE_MAX ((size_t)1 << 20)
#define RECORDS_MAX 32

/* What rank 0 sends, and where its records begin; start[count] is the end. */
typedef struct recording {
    uint8_t *wire;
    size_t start[RECORDS_MAX + 1];
    int count;
    uint64_t messages;
} recording;

static size_t tag_bytes(void) { return mesh_guarded == MESH_SUMMED ? 4 : 16; }

static void add_record(recording *r, size_t bytes) {
    r->start[r->count + 1] = r->start[r->count] + bytes + tag_bytes();
    r->count++;
}

static void lay_out(recording *r, const size_t *sizes, int count) {
    for (int i = 0; i < count; i++) {
        add_record(r, GW_FRAME_BYTES);
        for (size_t left = sizes[i], bytes; left > 0; left -= bytes) {
            bytes = left < GW_TCP_RECORD_BYTES ? left : GW_TCP_RECORD_BYTES;
            add_record(r, bytes);
        }
    }
}

static recording record(const size_t *sizes, int count) {
    recording r = {.wire = malloc(WIRE_MAX), .messages = (uint64_t)count};
    int fds[2];
    lay_out(&r, sizes, count);
    mesh *m = mesh_open(2, 1, false, false);
    socket_pair(fds, false);
    mesh_adopt(&m->ranks[0], 1, 0, 0, fds[0], true);
    for (int i = 0; i < count; i++) post(&m->ranks[0], 1, sizes[i]);
    size_t got = 0, total = r.start[r.count];
    for (gw_time end = gw_clock_now() + DEADLINE; got < total && gw_clock_now() < end;) {
        rank_poll(&m->ranks[0]);
        ssize_t more = recv(fds[1], r.wire + got, WIRE_MAX - got, MSG_DONTWAIT);
        if (more > 0) got += (size_t)more;
    }
    CHECK_EQ(total, got);
    close(fds[1]);
    mesh_close(m);
    return r;
}

/* A rank that takes what rank 0 is said to have sent. */
static int listener(mesh **m, bool by_parts) {
    int fds[2];
    socket_pair(fds, false);
    *m = mesh_open(2, 1, false, false);
    (*m)->ranks[1].takes = by_parts;
    mesh_adopt(&(*m)->ranks[1], 0, 0, 0, fds[1], false);
    rank_close(&(*m)->ranks[0]);
    return fds[0];
}

/* Plays the wire in pieces of `step` bytes, and then closes; the rank hears it to its end. */
static mesh *play(const uint8_t *wire, size_t bytes, size_t step, bool by_parts) {
    mesh *m;
    int fd = listener(&m, by_parts);
    gw_time end = gw_clock_now() + DEADLINE;
    for (size_t at = 0; at < bytes && !m->ranks[1].lost[0] && gw_clock_now() < end;) {
        ssize_t took = send(fd, wire + at, bytes - at < step ? bytes - at : step, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (took > 0) at += (size_t)took;
        rank_poll(&m->ranks[1]);
    }
    close(fd);
    POLL_UNTIL(m, m->ranks[1].lost[0] > 0);
    return m;
}

/* The messages before the change arrived and were right (tcp_mesh.h checks them); no other did. Where bytes are
 * missing, the rank may still have waited for the end of a record. */
static void expect_refusal(mesh *m, uint64_t arrived, bool shorter) {
    mesh_rank *n = &m->ranks[1];
    bool waited = shorter && strstr(n->lost_detail, "in the middle of a message");
    CHECK_EQ(arrived, n->arrived[0]);
    CHECK_EQ(waited ? GW_PEER_LOST : GW_PROTOCOL, n->lost_status);
    CHECK(waited || strstr(n->lost_detail, "was changed on its way"));
    mesh_close(m);
}

static bool is_header(const recording *r, int record) {
    return r->start[record + 1] - r->start[record] == GW_FRAME_BYTES + tag_bytes();
}

/* Messages that are whole before this record; no payload here is as long as a header. */
static uint64_t messages_before(const recording *r, int record) {
    uint64_t headers = 0;
    for (int i = 0; i < record; i++) headers += is_header(r, i);
    return is_header(r, record) ? headers : headers - 1;
}

static void every_bit(void) {
    static const size_t sizes[] = {5};
    recording r = record(sizes, 1);
    for (int i = 0; i < r.count; i++) {
        for (size_t bit = r.start[i] * 8; bit < r.start[i + 1] * 8; bit++) {
            r.wire[bit / 8] ^= (uint8_t)(1u << bit % 8);
            expect_refusal(play(r.wire, r.start[r.count], WIRE_MAX, false), messages_before(&r, i), false);
            r.wire[bit / 8] ^= (uint8_t)(1u << bit % 8);
        }
    }
    free(r.wire);
}

static const size_t large[] = {100, 300000, 20000, 150000};

/* One bit here and there of large payloads, whether the engine adds them up in parts or not. */
static void bits_of_large_payloads(void) {
    recording r = record(large, 4);
    for (int i = 0; i < r.count; i++) {
        for (int place = 0; place < 4; place++) {
            size_t bytes = r.start[i + 1] - r.start[i];
            uint8_t *at = r.wire + r.start[i] + (place < 3 ? bytes * (size_t)place / 3 : bytes - 1);
            *at ^= 16;
            expect_refusal(play(r.wire, r.start[r.count], place & 1 ? 50000 : WIRE_MAX, place & 2),
                           messages_before(&r, i), false);
            *at ^= 16;
        }
    }
    free(r.wire);
}

static uint8_t *put(uint8_t *to, const recording *r, int record) {
    size_t bytes = r->start[record + 1] - r->start[record];
    memcpy(to, r->wire + r->start[record], bytes);
    return to + bytes;
}

static void play_in_order(const recording *r, const int *order, int count, int first_wrong, bool by_parts) {
    uint8_t *wire = malloc(2 * WIRE_MAX), *at = wire;
    for (int i = 0; i < count; i++) at = put(at, r, order[i]);
    expect_refusal(play(wire, (size_t)(at - wire), WIRE_MAX, by_parts), messages_before(r, first_wrong),
                   count < r->count);
    free(wire);
}

/* Records left out, repeated, and swapped. Many have equal sizes, so that nothing else gives them away. */
static void order_of_records(void) {
    static const size_t sizes[] = {65, 65, 2 * GW_TCP_RECORD_BYTES, 65};
    recording r = record(sizes, 4);
    int order[RECORDS_MAX + 1];
    for (int i = 0; i + 1 < r.count; i++) {
        int n = 0;
        for (int k = 0; k < r.count; k++)
            if (k != i) order[n++] = k;
        play_in_order(&r, order, n, i, i & 1);
        n = 0;
        for (int k = 0; k < r.count; k++) {
            order[n++] = k;
            if (k == i) order[n++] = k;
        }
        play_in_order(&r, order, n, i + 1, i & 1);
        for (int j = i + 1; j < r.count; j++) {
            for (int k = 0; k < r.count; k++) order[k] = k == i ? j : k == j ? i : k;
            play_in_order(&r, order, r.count, i, j & 1);
        }
    }
    free(r.wire);
}

/* Cut anywhere, it is a peer that left, in the middle of a message or between two. */
static void cuts(void) {
    recording r = record(large, 4);
    size_t total = r.start[r.count];
    for (size_t cut = 0; cut < total; cut = cut < 300 ? cut + 7 : cut * 3 / 2) {
        mesh *m = play(r.wire, cut, WIRE_MAX, cut & 1);
        CHECK_EQ(GW_PEER_LOST, m->ranks[1].lost_status);
        CHECK(m->ranks[1].arrived[0] < r.messages);
        mesh_close(m);
    }
    free(r.wire);
}

static void fragments(void) {
    recording r = record(large, 4);
    for (size_t step = 37; step < 400000; step = step * 3 + 1) {
        for (int by_parts = 0; by_parts < 2; by_parts++) {
            mesh *m = play(r.wire, r.start[r.count], step, by_parts);
            CHECK_EQ(GW_PEER_LOST, m->ranks[1].lost_status);
            CHECK_STR("connection closed by the peer", m->ranks[1].lost_detail);
            CHECK_EQ(r.messages, m->ranks[1].arrived[0]);
            mesh_close(m);
        }
    }
    free(r.wire);
}

/* Valid tags around nonsense, and around a payload that nobody asked for. */
static void liars(void) {
    gw_tcp_guard guard;
    gw_traffic_keys keys = mesh_keys(0, 1, 0);
    for (int way = 0; way < 3; way++) {
        uint8_t wire[512] = {0};
        gw_frame frame = {.kind = way == 1 ? GW_FRAME_GRANT : GW_FRAME_DATA, .length = 100, .count = 301};
        gw_frame_write(&frame, wire);
        if (way == 0) memset(wire, 'G', GW_FRAME_BYTES);
        CHECK_EQ(GW_OK, gw_tcp_guard_open(&guard, &keys, mesh_guarded == MESH_SUMMED, NULL));
        CHECK(gw_tcp_guard_protect(&guard, wire, wire, GW_FRAME_BYTES, wire + GW_FRAME_BYTES));
        gw_tcp_guard_close(&guard);
        mesh *m;
        int fd = listener(&m, false);
        m->ranks[1].deaf = way == 2;
        CHECK_EQ(sizeof wire, (size_t)write(fd, wire, sizeof wire));
        POLL_UNTIL(m, m->ranks[1].lost[0] > 0);
        CHECK_EQ(GW_PROTOCOL, m->ranks[1].lost_status);
        CHECK(strstr(m->ranks[1].lost_detail, way == 2 ? "no place here" : "a frame's") != NULL);
        close(fd);
        mesh_close(m);
    }
}

/* What travels: readable with a checksum and mac, unreadable with tls. */
static void what_a_listener_sees(void) {
    static const size_t sizes[] = {5000};
    recording r = record(sizes, 1);
    bool readable = is_filled(r.wire + r.start[1], 0, 1, 0, 5000);
    CHECK_EQ(mesh_guarded != MESH_TLS, readable);
    free(r.wire);
}

/* Fills and sends batches until the packets are sent, while the wire is read; returns the number of batches. */
static int send_in_batches(gw_packet *packet, size_t room, uint8_t *wire, size_t *got) {
    gw_tcp_guard guard;
    gw_traffic_keys keys = mesh_keys(0, 1, 0);
    int fds[2], filled = 0;
    socket_pair(fds, false);
    CHECK_EQ(GW_OK, gw_tcp_guard_open(&guard, &keys, mesh_guarded == MESH_SUMMED, NULL));
    gw_tcp_batch *batch = gw_tcp_batch_make(&guard);
    gw_time end = gw_clock_now() + DEADLINE;
    for (*got = 0; packet && gw_clock_now() < end;) {
        if (!gw_tcp_batch_unsent(batch)) filled += gw_tcp_batch_fill(batch, &guard, packet, room);
        gw_tcp_batch_send(batch, fds[0]);
        ssize_t more = recv(fds[1], wire + *got, WIRE_MAX - *got, MSG_DONTWAIT);
        if (more > 0) *got += (size_t)more;
        if (gw_tcp_batch_unsent(batch)) continue;
        while (packet && packet->progress == GW_FRAME_BYTES + packet->frame.length) packet = packet->next;
    }
    close(fds[0]);
    for (ssize_t more; (more = recv(fds[1], wire + *got, WIRE_MAX - *got, 0)) != 0 && gw_clock_now() < end;)
        if (more > 0) *got += (size_t)more;
    close(fds[1]);
    gw_tcp_batch_free(batch);
    gw_tcp_guard_close(&guard);
    return filled;
}

/* Whatever the room of a batch, and where it ends in a payload, the wire has the same bytes. */
static void batches(void) {
    static const size_t sizes[] = {0, 700000, 9, 300000}, rooms[] = {1 << 20, 2 * GW_TCP_RECORD_BYTES};
    recording r = record(sizes, 4);
    uint8_t *wire = malloc(WIRE_MAX);
    for (int i = 0; i < 2; i++) {
        gw_packet packets[4];
        size_t got = 0;
        for (int p = 0; p < 4; p++) {
            uint8_t *data = malloc(sizes[p] + 1);
            fill(data, 0, 1, (uint64_t)p, sizes[p]);
            packets[p] = (gw_packet){.frame = {.kind = GW_FRAME_DATA, .index = (uint64_t)p, .length = sizes[p]},
                                     .data = data, .next = p < 3 ? &packets[p + 1] : NULL};
            packets[p].frame.count = sizes[p] * 3 + 1;
        }
        CHECK_EQ(mesh_guarded == MESH_TLS ? 5 : i + 1, send_in_batches(packets, rooms[i], wire, &got));
        CHECK_EQ(r.start[r.count], got);
        CHECK(memcmp(wire, r.wire, got) == 0);
        for (int p = 0; p < 4; p++) free((void *)(uintptr_t)packets[p].data);
    }
    free(wire);
    free(r.wire);
}

static void all_of(mesh_guard guard) {
    mesh_guarded = guard;
    every_bit(), bits_of_large_payloads(), order_of_records(), cuts(), fragments(), liars(), what_a_listener_sees();
    batches();
}

static void checksums(void) { all_of(MESH_SUMMED); }
static void mac(void) { all_of(MESH_MAC); }
static void tls(void) { all_of(MESH_TLS); }

TEST_MAIN(CASE(checksums), CASE(mac), CASE(tls))
