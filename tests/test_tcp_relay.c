/* test_tcp_relay.c - a relay between two ranks changes bits of the floats that they add up; it passes on everything
 * else, and TCP's own sums are right. Clear, both ranks get a wrong result and no error: that is what the guards are
 * for. With a checksum, mac or tls one of them fails with a sentence, and nothing wrong is added up. */
#include "base/clock.h"
#include "engine/engine_internal.h"
#include "tcp_mesh.h"

#include <errno.h>

#define COUNT 200000 /* floats */

typedef struct side {
    gw_engine *engine;
    gw_transport *tcp;
    gw_team *team;
    gw_op *op;
    gw_error failed; /* what the engine reported */
    int relayed;     /* the relay's end */
    uint64_t passed; /* bytes from this side to the other */
    float values[COUNT];
} side;

static void on_failed(void *ctx, const gw_error *error) { ((side *)ctx)->failed = *error; }
static void on_waiting(void *ctx, const int *awaited, int count, const char *what, gw_time deadline) {
    (void)ctx, (void)awaited, (void)count, (void)what, (void)deadline;
}
static const char *host_name(void *ctx, int rank) {
    (void)ctx, (void)rank;
    return "here";
}
static void no_dial(void *ctx, int peer, int stream, uint32_t generation) {
    (void)ctx, (void)peer, (void)stream, (void)generation;
}

static side *side_open(int rank) {
    side *s = calloc(1, sizeof *s);
    int members[2] = {0, 1}, hosts[2] = {0, 1}, fds[2];
    bool all[2] = {true, true};
    gw_engine_config config = {.rank = rank,
                               .world = 2,
                               .deadline = 10 * GW_SECOND,
                               .host_name = host_name,
                               .events = {.ctx = s, .failed = on_failed, .waiting = on_waiting, .overdue = on_waiting}};
    gw_tcp_options options = {
        .rank = rank, .world = 2, .streams = 1, .summed = mesh_guarded == MESH_SUMMED ? all : NULL};
    gw_topology topology = {.world = 2, .host_of = hosts};
    gw_traffic_keys keys = mesh_keys(rank, 1 - rank, 0);
    CHECK_EQ(GW_OK, gw_engine_open(&s->engine, &config, NULL));
    CHECK_EQ(GW_OK, gw_tcp_open(&s->tcp, &options, gw_engine_sink(s->engine), no_dial, s, NULL));
    gw_engine_route(s->engine, 1 - rank, s->tcp);
    CHECK_EQ(GW_OK, gw_team_open(&s->team, s->engine, 1, rank, members, &topology, NULL, NULL));
    socket_pair(fds, false);
    gw_tcp_adopt(s->tcp, 1 - rank, 0, 0, fds[0], rank == 0, &keys);
    s->relayed = fds[1];
    CHECK_EQ(0, fcntl(fds[1], F_SETFL, O_NONBLOCK));
    for (int i = 0; i < COUNT; i++) s->values[i] = (float)(i % 100 + rank);
    return s;
}

static void side_close(side *s) {
    gw_error over = {.status = GW_ABORTED, .rank = -1};
    gw_engine_fail(s->engine, &over);
    if (s->op) gw_op_release(s->op);
    s->tcp->ops->close(s->tcp);
    gw_team_close(s->team);
    gw_engine_close(s->engine);
    close(s->relayed);
    free(s);
}

/* Flips a high bit of an exponent in every 50,000 bytes, past the first header. */
static void relay(side *from, side *to, bool changes) {
    uint8_t bytes[50000];
    ssize_t got = recv(from->relayed, bytes, sizeof bytes, MSG_DONTWAIT);
    if (got <= 0) return;
    if (changes && from->passed > 1000 && got > 40000) bytes[got / 2 | 3] ^= 0x20;
    from->passed += (uint64_t)got;
    for (ssize_t sent = 0; sent < got;) {
        ssize_t took = send(to->relayed, bytes + sent, (size_t)(got - sent), MSG_NOSIGNAL | MSG_DONTWAIT);
        if (took > 0) sent += took;
        else if (took < 0 && errno != EAGAIN) return;
        gw_engine_poll(to->engine, gw_clock_now());
    }
}

static int wrong_values(const side *s) {
    int wrong = 0;
    for (int i = 0; i < COUNT; i++) wrong += s->values[i] != (float)(2 * (i % 100) + 1);
    return wrong;
}

/* Returns the error that a rank reported first, GW_OK if both ended well; *wrong: values that are not the sum. */
static gw_error reduce(mesh_guard guard, bool changes, int *wrong) {
    mesh_guarded = guard;
    side *s[2] = {side_open(0), side_open(1)};
    for (int r = 0; r < 2; r++) {
        gw_op_spec spec = {.collective = GW_COLL_ALLREDUCE,
                           .in = s[r]->values,
                           .out = s[r]->values,
                           .count = COUNT,
                           .dtype = GW_F32,
                           .redop = GW_SUM,
                           .builder = &gw_plan_ring};
        CHECK_EQ(GW_OK, gw_op_start(&s[r]->op, s[r]->team, &spec, gw_clock_now(), NULL));
    }
    gw_time end = gw_clock_now() + DEADLINE;
    while (!(gw_op_done(s[0]->op) && gw_op_done(s[1]->op)) && !s[0]->failed.status && !s[1]->failed.status &&
           gw_clock_now() < end) {
        for (int r = 0; r < 2; r++) {
            gw_engine_poll(s[r]->engine, gw_clock_now());
            relay(s[r], s[1 - r], changes);
        }
    }
    CHECK(gw_clock_now() < end);
    gw_error first = s[0]->failed.status ? s[0]->failed : s[1]->failed;
    *wrong = wrong_values(s[0]) + wrong_values(s[1]);
    for (int r = 0; r < 2; r++) side_close(s[r]);
    return first;
}

static void an_honest_relay_is_unseen(void) {
    int wrong;
    for (mesh_guard guard = MESH_CLEAR; guard < MESH_GUARDS; guard++) {
        CHECK_EQ(GW_OK, reduce(guard, false, &wrong).status);
        CHECK_EQ(0, wrong);
    }
}

static void clear_it_makes_wrong_values(void) {
    int wrong;
    CHECK_EQ(GW_OK, reduce(MESH_CLEAR, true, &wrong).status);
    printf("    %d wrong values\n", wrong);
    CHECK(wrong > 0);
}

static void guarded_it_is_found_out(void) {
    int wrong;
    for (mesh_guard guard = MESH_SUMMED; guard < MESH_GUARDS; guard++) {
        gw_error error = reduce(guard, true, &wrong);
        printf("    %s\n", error.text);
        CHECK_EQ(GW_PROTOCOL, error.status);
        CHECK(strstr(error.text, "was changed on its way"));
        CHECK(strstr(error.text, guard == MESH_SUMMED ? "checksum" : "tag"));
    }
}

TEST_MAIN(CASE(an_honest_relay_is_unseen), CASE(clear_it_makes_wrong_values), CASE(guarded_it_is_found_out))
