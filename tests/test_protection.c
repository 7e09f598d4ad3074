/* test_protection.c - what ranks of a job refuse of each other: connections with less protection than their strategy
 * asks for, even from a rank that knows the token. And the warning of a token that can be guessed. */
#include <stdatomic.h>

#include "bootstrap/job_environment.h"
#include "bootstrap/rendezvous.h"
#include "small_job.h"

static int world_port;
static const char mac[] = "transport=tcp:security=mac";
static atomic_int refusals; /* that rank 0 has logged */

static void look_for_refusals(void *ctx, gw_log_level level, int rank, const char *text) {
    (void)ctx, (void)level, (void)rank;
    if (strstr(text, "a connection of rank 1 ") && strstr(text, "was refused: it is clear, but must be mac"))
        atomic_fetch_add(&refusals, 1);
}

/* A connection that this rank has dialled, or that rank 0 has. */
typedef struct came {
    int fd;
    bool dialled, failed;
} came;

static void on_established(void *ctx, const gw_intro *peer, int fd, bool dialled, const gw_traffic_keys *keys) {
    came *c = ctx;
    (void)peer, (void)keys;
    if (dialled == c->dialled) c->fd = fd;
}

static void on_failed(void *ctx, const gw_intro *mine, gw_status status, const char *detail) {
    (void)mine, (void)status;
    printf("    %s\n", detail);
    ((came *)ctx)->failed = true;
}

/* Joins like an honest rank. */
static gw_connections *meet(const gw_options *options, gw_endpoint all[2]) {
    gw_connections *connections = NULL;
    gw_job_env job_env;
    gw_token token;
    gw_rendezvous_address rendezvous;
    gw_address address;
    gw_endpoint mine;
    gw_error error = {.rank = -1};
    gw_status status = gw_job_env_find(options, &job_env, &error);
    if (!status) status = gw_token_find(options->token, &token, &error);
    if (!status) status = gw_connections_open(&connections, 1, 2, &token, job_env.job, &error);
    if (!status) gw_connections_ask(connections, GW_SECURITY_CHOICE_MAC);
    if (!status) status = gw_rendezvous_address_find(&job_env, NULL, &rendezvous, &error);
    if (!status)
        status = gw_rendezvous_address_listen(connections, &job_env, &rendezvous, NULL, NULL, &address, &error);
    if (!status) status = gw_endpoint_describe(1, &address, &mine, &error);
    if (!status)
        status = gw_rendezvous(connections, &rendezvous, &mine, 2, gw_clock_now() + 10 * GW_SECOND, all, &error);
    CHECK_STR("", status ? error.text : "");
    return status ? NULL : connections;
}

static void await(gw_connections *connections, const came *c) {
    gw_time end = gw_clock_now() + TEST_PATIENCE_S * GW_SECOND;
    for (; c->fd < 0 && !c->failed && gw_clock_now() < end; usleep(1000))
        gw_connections_poll(connections, gw_clock_now());
    CHECK(c->fd >= 0);
}

/* Dials rank 0 with this protection; true if rank 0 closes the connection. */
static bool is_refused(gw_connections *connections, const gw_address *zero, gw_purpose purpose, gw_security security) {
    came c = {.fd = -1, .dialled = true};
    char byte;
    ssize_t got = -1;
    gw_intro intro = {.purpose = purpose, .from = 1, .to = 0, .world = 2, .security = security};
    gw_time end = gw_clock_now() + TEST_PATIENCE_S * GW_SECOND;
    gw_connections_serve(connections, purpose, &(gw_connection_handler){&c, on_established, on_failed});
    CHECK_EQ(GW_OK, gw_connections_dial(connections, zero, 1, &intro, end, NULL));
    await(connections, &c);
    int wait_ms = security == GW_SECURITY_CLEAR ? 3000 : 100;
    for (int i = 0; c.fd >= 0 && got != 0 && i < wait_ms; i++, usleep(1000)) got = recv(c.fd, &byte, 1, MSG_DONTWAIT);
    if (c.fd >= 0) close(c.fd);
    return got == 0;
}

static void be_rank(int rank) {
    gw_options options = job_options(rank, 2, world_port, mac);
    if (rank == 0) {
        gw_comm *comm = NULL;
        gw_set_log(look_for_refusals, NULL);
        CHECK_EQ(GW_PEER_LOST, gw_init(&comm, &options)); /* rank 1 says nothing over the connection that is taken */
        CHECK_EQ(2, atomic_load(&refusals));
        return;
    }
    gw_endpoint all[2];
    came control = {.fd = -1};
    gw_connections *connections = meet(&options, all);
    if (!connections) return;
    gw_connections_serve(connections, GW_PURPOSE_CONTROL,
                         &(gw_connection_handler){&control, on_established, on_failed});
    await(connections, &control); /* rank 0 dials it */
    CHECK(is_refused(connections, &all[0].address, GW_PURPOSE_CONTROL, GW_SECURITY_CLEAR));
    CHECK(is_refused(connections, &all[0].address, GW_PURPOSE_DATA, GW_SECURITY_CLEAR));
    CHECK(!is_refused(connections, &all[0].address, GW_PURPOSE_DATA, GW_SECURITY_MAC));
    gw_connections_close(connections);
}

/* Rank 1 knows the token and has its own key, but says that its connections are clear. */
static void less_protection_is_refused(void) {
    world_port = free_port();
    job_fork(2, be_rank);
}

static bool warned;

static void look_for_bits(void *ctx, gw_log_level level, int rank, const char *text) {
    (void)ctx, (void)rank;
    if (level == GW_LOG_WARN && strstr(text, "random bits")) warned = true;
}

static const char *token;

static void join_with_token(int rank) {
    gw_comm *comm = NULL;
    gw_options options = job_options(rank, 2, world_port, "arch=auto");
    options.token = token;
    gw_set_log(look_for_bits, NULL);
    CHECK_EQ(GW_OK, gw_init(&comm, &options));
    CHECK_EQ(rank == 0 && strlen(token) < 32, warned);
    gw_finalize(comm);
}

/* Once, by rank 0. */
static void weak_tokens_are_warned_of(void) {
    static const char *const tokens[] = {"sixteen-letters!", "0f1e2d3c4b5a69788796a5b4c3d2e1f0"};
    for (size_t i = 0; i < 2; i++) {
        token = tokens[i];
        world_port = free_port();
        job_fork(2, join_with_token);
    }
}

TEST_MAIN(CASE(less_protection_is_refused), CASE(weak_tokens_are_warned_of))
