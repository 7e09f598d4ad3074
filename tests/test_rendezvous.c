/* test_rendezvous.c - ranks as threads meet on loopback, or all of them get the reason why they cannot. */
#include "bootstrap/channel.h"
#include "bootstrap/rendezvous.h"

#include "bootstrap/listen.h"
#include "free_port.h"
#include "test.h"

#include <pthread.h>
#include <stdatomic.h>

#define DEADLINE_S 30.0
#define AT_ONCE_S (DEADLINE_S / 2) /* for all to get a known error: not only at the deadline */

typedef struct member {
    gw_job_env job_env;
    const char *secret;
    const char *ports;
    const struct member *after; /* starts when that one has ended; NULL: at once */
    int wait_ms;                /* and that much later */
    double deadline_s;
    gw_security_choice asked;
    bool leaves; /* joins, then goes away */
    bool over;   /* it is a rank 0 whose job is over, and ends when it has refused a rank */
    /* results */
    gw_status status;
    gw_error error;
    gw_endpoint all[16];
    double took_s;
    atomic_bool ended; /* written by its thread, read by those that start after it */
    pthread_t thread;
} member;

static member make(int rank, int world, const char *master, int port) {
    member m = {.job_env = {.rank = rank, .world = world, .listen_fd = -1, .port_low = port, .port_high = port},
                .secret = "a token of this test",
                .deadline_s = DEADLINE_S};
    snprintf(m.job_env.master, sizeof m.job_env.master, "%s", master);
    snprintf(m.job_env.job, sizeof m.job_env.job, "test");
    return m;
}

/* Joins as a true rank would, up to its record, and hangs up. */
static void leave_early(void *ctx, const gw_intro *peer, int fd, bool dialled, const gw_traffic_keys *keys) {
    uint8_t bytes[GW_ENDPOINT_BYTES];
    gw_channel *channel = NULL;
    (void)peer;
    CHECK(dialled);
    gw_endpoint_write(ctx, bytes);
    CHECK_EQ(GW_OK, gw_channel_open(&channel, fd, keys, NULL));
    CHECK_EQ(sizeof bytes, gw_channel_send(channel, bytes, sizeof bytes));
    CHECK(gw_channel_flush(channel));
    gw_channel_close(channel);
    ((gw_endpoint *)ctx)->rank = -1;
}

static gw_status join_and_leave(gw_connections *connections, const gw_rendezvous_address *rendezvous, gw_endpoint mine,
                                int world) {
    gw_intro intro = {.purpose = GW_PURPOSE_JOIN, .from = mine.rank, .world = world, .security = GW_SECURITY_MAC};
    memcpy(mine.public_key, gw_connections_public_key(connections), GW_KEY_BYTES);
    gw_connections_serve(connections, GW_PURPOSE_JOIN, &(gw_connection_handler){&mine, leave_early, NULL});
    gw_time deadline = gw_clock_now() + TEST_PATIENCE_S * GW_SECOND;
    gw_connections_dial(connections, rendezvous->at, rendezvous->count, &intro, deadline, NULL);
    while (mine.rank >= 0 && gw_clock_now() < deadline) {
        gw_connections_poll(connections, gw_clock_now());
        usleep(1000);
    }
    return GW_OK;
}

static void turn_away(void *ctx, const gw_intro *peer, int fd, bool dialled, const gw_traffic_keys *keys) {
    (void)peer;
    (void)keys;
    CHECK(!dialled);
    close(fd);
    *(bool *)ctx = true;
}

static gw_status be_over(gw_connections *connections) {
    bool seen = false;
    gw_connections_serve(connections, GW_PURPOSE_JOIN, &(gw_connection_handler){&seen, turn_away, NULL});
    for (gw_time end = gw_clock_now() + TEST_PATIENCE_S * GW_SECOND; !seen && gw_clock_now() < end; usleep(1000))
        gw_connections_poll(connections, gw_clock_now());
    CHECK(seen);
    return GW_OK;
}

static void *run(void *arg) {
    member *m = arg;
    gw_connections *connections = NULL;
    gw_token token = {0};
    gw_rendezvous_address rendezvous;
    gw_address address;
    gw_endpoint mine;
    while (m->after && !atomic_load(&m->after->ended)) usleep(1000);
    usleep((useconds_t)m->wait_ms * 1000);
    snprintf(token.text, sizeof token.text, "%s", m->secret);
    gw_time start = gw_clock_now();
    m->status = gw_connections_open(&connections, m->job_env.rank, m->job_env.world, &token, m->job_env.job, &m->error);
    if (m->status == GW_OK) gw_connections_ask(connections, m->asked);
    if (m->status == GW_OK) m->status = gw_rendezvous_address_find(&m->job_env, NULL, &rendezvous, &m->error);
    if (m->status == GW_OK)
        m->status =
            gw_rendezvous_address_listen(connections, &m->job_env, &rendezvous, NULL, m->ports, &address, &m->error);
    if (m->status == GW_OK) m->status = gw_endpoint_describe(m->job_env.rank, &address, &mine, &m->error);
    if (m->status == GW_OK) {
        memset(mine.transport, 100 + m->job_env.rank, sizeof mine.transport);
        if (m->over) m->status = be_over(connections);
        else if (m->leaves) m->status = join_and_leave(connections, &rendezvous, mine, m->job_env.world);
        else
            m->status = gw_rendezvous(connections, &rendezvous, &mine, m->job_env.world,
                                      start + (gw_time)(m->deadline_s * (double)GW_SECOND), m->all, &m->error);
    }
    m->took_s = (double)(gw_clock_now() - start) / (double)GW_SECOND;
    gw_connections_close(connections);
    atomic_store(&m->ended, true);
    return NULL;
}

static void run_all(member *members, int count) {
    for (int i = 0; i < count; i++) CHECK_EQ(0, pthread_create(&members[i].thread, NULL, run, &members[i]));
    for (int i = 0; i < count; i++) pthread_join(members[i].thread, NULL);
}

/* A listening socket, as a launcher makes for rank 0. */
static int launcher_socket(const char *host, int *port) {
    gw_address address, bound;
    int fd = -1;
    CHECK(gw_address_literal(host, &address));
    CHECK_EQ(GW_OK, gw_listen_open(&address, 0, 0, &fd, &bound, NULL));
    *port = gw_address_port(&bound);
    return fd;
}

static void check_tables(const member *members, int world) {
    for (int i = 0; i < world; i++) {
        CHECK_EQ(GW_OK, members[i].status);
        CHECK_STR("", members[i].error.text);
        for (int rank = 0; rank < world; rank++) {
            const gw_endpoint *e = &members[i].all[rank];
            CHECK_EQ(rank, e->rank);
            CHECK_EQ(getpid(), e->pid);
            CHECK_EQ(100 + rank, e->transport[63]);
            CHECK_STR(members[0].all[0].identity, e->identity);
            CHECK_EQ(32, strlen(e->identity));
            CHECK(gw_address_port(&e->address) == gw_address_port(&members[0].all[rank].address));
        }
    }
}

static void meets(const char *host) {
    for (int world = 1; world <= 8; world++) {
        member members[8];
        int port, fd = launcher_socket(host, &port);
        for (int i = 0; i < world; i++) members[i] = make(i, world, host, port);
        members[0].job_env.listen_fd = fd;
        run_all(members, world);
        check_tables(members, world);
        for (int i = 0; i < world; i++) CHECK(members[i].took_s < AT_ONCE_S);
    }
}

static void rendezvous_v4(void) { meets("127.0.0.1"); }
static void rendezvous_v6(void) { meets("::1"); }
static void rendezvous_localhost(void) {
    int port = free_port();
    member members[3];
    for (int i = 0; i < 3; i++) members[i] = make(i, 3, "localhost", port);
    run_all(members, 3);
    check_tables(members, 3);
}

static void rank_0_comes_last(void) {
    int port = free_port();
    member members[3];
    for (int i = 0; i < 3; i++) members[i] = make(i, 3, "127.0.0.1", port);
    members[0].wait_ms = 400;
    run_all(members, 3);
    check_tables(members, 3);
}

/* As after gw_finalize and gw_init in one process: the first to join again meets a rank 0 that has yet to leave. */
static void rank_0_is_still_in_the_last_generation(void) {
    int port = free_port();
    member members[2], before = make(0, 2, "127.0.0.1", port);
    for (int i = 0; i < 2; i++) members[i] = make(i, 2, "127.0.0.1", port);
    before.over = true;
    CHECK_EQ(0, pthread_create(&members[1].thread, NULL, run, &members[1]));
    run_all(&before, 1);
    run_all(members, 1);
    pthread_join(members[1].thread, NULL);
    check_tables(members, 2);
}

static void rank_0_is_gone(void) {
    int port = free_port();
    member members[2];
    for (int i = 0; i < 2; i++) members[i] = make(i, 2, "127.0.0.1", port);
    members[0].over = true;
    members[1].deadline_s = 1.5;
    run_all(members, 2);
    CHECK_EQ(GW_PEER_LOST, members[1].status);
    CHECK(strstr(members[1].error.text, "before all ranks had joined ("));
    CHECK(strstr(members[1].error.text, "and cannot be reached again"));
}

/* The first of three free ports in a row; the first two are bound. */
static int three_free_ports(int *first, int *second) {
    gw_address loopback, bound;
    CHECK(gw_address_literal("127.0.0.1", &loopback));
    for (int base = 23000 + (int)getpid() % 1000; base < 25000; base += 40) {
        int third = -1;
        bool free_first = gw_listen_open(&loopback, base, base, first, &bound, NULL) == GW_OK;
        bool free_second = gw_listen_open(&loopback, base + 1, base + 1, second, &bound, NULL) == GW_OK;
        bool free_third = gw_listen_open(&loopback, base + 2, base + 2, &third, &bound, NULL) == GW_OK;
        if (free_third) close(third);
        if (free_first && free_second && free_third) return base;
        if (free_first) close(*first);
        if (free_second) close(*second);
    }
    CHECK(!"three free ports");
    return 23000;
}

/* Of the ports that may be tried one is silent and one belongs to another job; a range keeps clear of them all. */
static void one_of_sixteen_ports(void) {
    int silent = -1, other_fd = -1, base = three_free_ports(&silent, &other_fd), other_port = base + 1;
    member members[3], other[2];
    for (int i = 0; i < 3; i++) {
        members[i] = make(i, 3, "127.0.0.1", base);
        members[i].job_env.port_high = base + 15;
        members[i].ports = "23000-25100";
    }
    for (int i = 0; i < 2; i++) {
        other[i] = make(i, 2, "127.0.0.1", other_port);
        snprintf(other[i].job_env.job, sizeof other[i].job_env.job, "another");
    }
    other[0].job_env.listen_fd = other_fd;
    CHECK_EQ(0, pthread_create(&other[0].thread, NULL, run, &other[0])); /* the other job waits all the while */
    run_all(members, 3);
    run_all(&other[1], 1);
    pthread_join(other[0].thread, NULL);
    check_tables(members, 3);
    CHECK_EQ(GW_OK, other[0].status);
    CHECK_EQ(GW_OK, other[1].status);
    CHECK_EQ(base + 2, gw_address_port(&members[0].all[0].address));
    close(silent);
}

static void missing_ranks_are_named(void) {
    int port, fd = launcher_socket("127.0.0.1", &port);
    static const int present[] = {0, 1, 4};
    member members[3];
    for (int i = 0; i < 3; i++) {
        members[i] = make(present[i], 7, "127.0.0.1", port);
        members[i].deadline_s = 1.5;
    }
    members[0].job_env.listen_fd = fd;
    run_all(members, 3);
    for (int i = 0; i < 3; i++) {
        CHECK_EQ(GW_TIMEOUT, members[i].status);
        CHECK(strstr(members[i].error.text, "ranks 2, 3, 5, 6 of 7 have not arrived at 127.0.0.1:") != NULL);
        CHECK(members[i].took_s > 1.4 && members[i].took_s < 1.5 + AT_ONCE_S);
    }
}

static void two_worlds(void) {
    int port, fd = launcher_socket("127.0.0.1", &port);
    member members[3] = {make(0, 3, "127.0.0.1", port), make(9, 12, "127.0.0.1", port), make(2, 3, "127.0.0.1", port)};
    members[0].job_env.listen_fd = fd;
    members[2].wait_ms = 300; /* comes when it is already known */
    run_all(members, 3);
    for (int i = 0; i < 3; i++) {
        CHECK_EQ(GW_MISMATCH, members[i].status);
        CHECK_EQ(9, members[i].error.rank);
        CHECK(strstr(members[i].error.text, "says 12, rank 0 on ") && strstr(members[i].error.text, "says 3"));
        CHECK(members[i].took_s < AT_ONCE_S);
    }
}

/* Strategy lines that differ in what they ask for: a sentence on all ranks, before anything else is exchanged. */
static void two_protections(void) {
    int port, fd = launcher_socket("127.0.0.1", &port);
    member members[3] = {make(0, 3, "127.0.0.1", port), make(1, 3, "127.0.0.1", port), make(2, 3, "127.0.0.1", port)};
    members[0].job_env.listen_fd = fd;
    for (int i = 0; i < 3; i++) members[i].asked = i == 1 ? GW_SECURITY_CHOICE_TLS : GW_SECURITY_CHOICE_CLEAR;
    run_all(members, 3);
    for (int i = 0; i < 3; i++) {
        CHECK_EQ(GW_MISMATCH, members[i].status);
        CHECK_EQ(1, members[i].error.rank);
        CHECK(strstr(members[i].error.text, "says security=tls, rank 0 on ") != NULL);
        CHECK(strstr(members[i].error.text, "says security=clear") != NULL);
        CHECK(members[i].took_s < AT_ONCE_S);
    }
}

static void the_same_rank_twice(void) {
    int port, fd = launcher_socket("127.0.0.1", &port);
    member members[5] = {make(0, 4, "127.0.0.1", port), make(1, 4, "127.0.0.1", port), make(1, 4, "127.0.0.1", port),
                         make(2, 4, "127.0.0.1", port), make(3, 4, "127.0.0.1", port)};
    members[0].job_env.listen_fd = fd;
    members[4].wait_ms = 1000; /* or all might have met before rank 1 comes again */
    run_all(members, 5);
    for (int i = 0; i < 5; i++) {
        CHECK_EQ(GW_MISMATCH, members[i].status);
        CHECK(strstr(members[i].error.text, "rank 1 has come twice: from ") != NULL);
    }
}

static void a_rank_that_leaves(void) {
    int port, fd = launcher_socket("127.0.0.1", &port);
    member members[4] = {make(0, 4, "127.0.0.1", port), make(1, 4, "127.0.0.1", port), make(3, 4, "127.0.0.1", port),
                         make(2, 4, "127.0.0.1", port)};
    members[0].job_env.listen_fd = fd;
    members[2].after = &members[3];
    members[2].wait_ms = 400; /* comes when it is already known */
    members[3].leaves = true;
    members[3].wait_ms = 1000; /* the others wait for rank 3 alone */
    run_all(members, 4);
    for (int i = 0; i < 3; i++) {
        CHECK_EQ(GW_PEER_LOST, members[i].status);
        CHECK_EQ(2, members[i].error.rank);
        CHECK(strstr(members[i].error.text, "for rank 3") != NULL);
        CHECK(members[i].took_s < AT_ONCE_S);
    }
}

static void another_token(void) {
    int port, fd = launcher_socket("127.0.0.1", &port);
    member members[2] = {make(0, 2, "127.0.0.1", port), make(1, 2, "127.0.0.1", port)};
    members[0].job_env.listen_fd = fd;
    members[0].deadline_s = 1.5;
    members[1].secret = "not the same token";
    run_all(members, 2);
    CHECK_EQ(GW_DENIED, members[1].status);
    CHECK(members[1].took_s < AT_ONCE_S);
    CHECK(strstr(members[1].error.text, "GRADWIRE_TOKEN") != NULL);
    CHECK_EQ(GW_TIMEOUT, members[0].status);
    CHECK(strstr(members[0].error.text, "rank 1 of 2 has not arrived") != NULL);
    CHECK(strstr(members[0].error.text, "strangers refused: 1") != NULL);
}

static void no_rank_0(void) {
    member m = make(1, 2, "127.0.0.1", free_port());
    m.deadline_s = 1;
    run_all(&m, 1);
    CHECK_EQ(GW_TIMEOUT, m.status);
    CHECK(strstr(m.error.text, "Connection refused") && strstr(m.error.text, "MASTER_ADDR"));
    CHECK(m.took_s < AT_ONCE_S);
    int port, fd = launcher_socket("127.0.0.1", &port);
    m = make(0, 2, "127.0.0.1", port); /* rank 0, whose port is in use */
    run_all(&m, 1);
    CHECK_EQ(GW_SYSTEM, m.status);
    CHECK(strstr(m.error.text, "another program has it") != NULL);
    m = make(1, 2, "127.0.0.1", port); /* one that accepts but never speaks */
    m.deadline_s = 1;
    run_all(&m, 1);
    CHECK_EQ(GW_TIMEOUT, m.status);
    CHECK(strstr(m.error.text, "did not answer the handshake") != NULL);
    close(fd);
}

TEST_MAIN(CASE(rendezvous_v4), CASE(rendezvous_v6), CASE(rendezvous_localhost), CASE(rank_0_comes_last),
          CASE(rank_0_is_still_in_the_last_generation), CASE(rank_0_is_gone), CASE(one_of_sixteen_ports),
          CASE(missing_ranks_are_named), CASE(two_worlds), CASE(two_protections), CASE(the_same_rank_twice),
          CASE(a_rank_that_leaves), CASE(another_token), CASE(no_rank_0))
