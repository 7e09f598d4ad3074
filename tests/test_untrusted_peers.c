/* test_untrusted_peers.c - while ranks meet and exchange data, strangers of every kind connect to rank 0: all are
 * refused, and no rank is disturbed. */
#include "bootstrap/rendezvous.h"

#include "test.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/resource.h>

enum { EACH = 64, FLOOD = 700, WORLD = 3, MESSAGE = 1 << 16, ROUNDS = 40 };

typedef struct rank {
    int number;
    gw_connections *connections;
    gw_rendezvous_address rendezvous;
    int fd[WORLD]; /* data connections of rank 0, by rank; of the others: fd[0] */
    int wait_ms;
    gw_status status;
    gw_error error;
    uint64_t errors; /* bytes that came back wrong */
    bool finished;
    pthread_t thread;
} rank;

static atomic_bool over;

static void on_data(void *ctx, const gw_intro *peer, int fd, bool dialled, const gw_traffic_keys *keys) {
    rank *r = ctx;
    (void)dialled;
    (void)keys;
    r->fd[peer->from] = fd;
}

static void on_failed(void *ctx, const gw_intro *mine, gw_status status, const char *detail) {
    rank *r = ctx;
    (void)mine;
    r->status = gw_fail(&r->error, status, "%s", detail);
}

/* Rank 0 echoes what it gets. */
static void echo(rank *r) {
    static uint8_t buffer[WORLD][MESSAGE];
    static size_t have[WORLD], given[WORLD];
    for (int i = 1; i < WORLD; i++) {
        if (r->fd[i] < 0) continue;
        if (have[i] == given[i]) {
            ssize_t got = recv(r->fd[i], buffer[i], MESSAGE, 0);
            have[i] = got > 0 ? (size_t)got : 0;
            given[i] = 0;
        }
        ssize_t sent = have[i] > given[i] ? send(r->fd[i], buffer[i] + given[i], have[i] - given[i], MSG_NOSIGNAL) : 0;
        if (sent > 0) given[i] += (size_t)sent;
    }
}

static void serve_echo(rank *r) {
    while (!atomic_load(&over)) {
        struct pollfd fds[WORLD] = {{.fd = gw_connections_fd(r->connections), .events = POLLIN}};
        for (int i = 1; i < WORLD; i++) fds[i] = (struct pollfd){.fd = r->fd[i], .events = POLLIN};
        poll(fds, WORLD, 5);
        gw_connections_poll(r->connections, gw_clock_now());
        echo(r);
    }
}

static bool all_of_it(int fd, uint8_t *in, const uint8_t *out) {
    size_t sent = 0, have = 0;
    while (have < MESSAGE) {
        struct pollfd p = {.fd = fd, .events = (short)(POLLIN | (sent < MESSAGE ? POLLOUT : 0))};
        if (poll(&p, 1, TEST_PATIENCE_S * 1000) <= 0) return false;
        ssize_t n = sent < MESSAGE ? send(fd, out + sent, MESSAGE - sent, MSG_NOSIGNAL) : 0;
        if (n > 0) sent += (size_t)n;
        n = recv(fd, in + have, MESSAGE - have, 0);
        if (n == 0) return false;
        if (n > 0) have += (size_t)n;
    }
    return true;
}

/* The others send, wait for the echo, and compare, spread over the time of the attack. */
static void exchange(rank *r, const gw_address *zero) {
    uint8_t *out = malloc(MESSAGE), *in = malloc(MESSAGE);
    gw_intro intro = {.purpose = GW_PURPOSE_DATA, .from = r->number, .to = 0, .world = WORLD};
    gw_time deadline = gw_clock_now() + TEST_PATIENCE_S * GW_SECOND;
    gw_connections_dial(r->connections, zero, 1, &intro, deadline, NULL);
    while (r->fd[0] < 0 && r->status == GW_OK && gw_clock_now() < deadline + GW_SECOND) {
        gw_connections_poll(r->connections, gw_clock_now());
        usleep(500);
    }
    for (int round = 0; round < ROUNDS && r->fd[0] >= 0; round++) {
        for (size_t i = 0; i < MESSAGE; i++) out[i] = (uint8_t)(i * 7 + (size_t)round * 31 + (size_t)r->number);
        r->finished = all_of_it(r->fd[0], in, out) && round == ROUNDS - 1;
        for (size_t i = 0; i < MESSAGE; i++) r->errors += in[i] != out[i];
        usleep(30000);
    }
    free(out);
    free(in);
}

static void *live(void *arg) {
    rank *r = arg;
    gw_endpoint mine, all[WORLD];
    usleep((useconds_t)r->wait_ms * 1000);
    gw_connections_serve(r->connections, GW_PURPOSE_DATA, &(gw_connection_handler){r, on_data, on_failed});
    r->status = gw_endpoint_describe(r->number, gw_connections_address(r->connections, 0), &mine, &r->error);
    if (r->status == GW_OK)
        r->status = gw_rendezvous(r->connections, &r->rendezvous, &mine, WORLD,
                                  gw_clock_now() + TEST_PATIENCE_S * GW_SECOND, all, &r->error);
    if (r->status != GW_OK) return NULL;
    if (r->number == 0) serve_echo(r);
    else exchange(r, &all[0].address);
    return NULL;
}

static void prepare(rank *ranks) {
    gw_token token = {.text = "a token of this test"};
    gw_address loopback;
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    atomic_store(&over, false);
    CHECK(gw_address_literal("127.0.0.1", &loopback));
    for (int i = 0; i < WORLD; i++) {
        ranks[i] = (rank){.number = i, .fd = {-1, -1, -1}};
        CHECK_EQ(GW_OK, gw_connections_open(&ranks[i].connections, i, WORLD, &token, "job", NULL));
        CHECK_EQ(GW_OK, gw_connections_listen(ranks[i].connections, &loopback, 0, 0, NULL));
        ranks[i].rendezvous.count = 1;
        ranks[i].rendezvous.at[0] = *gw_connections_address(ranks[0].connections, 0);
        gw_address_text(&ranks[i].rendezvous.at[0], ranks[i].rendezvous.text);
    }
    ranks[2].wait_ms = 600; /* joins in the midst of it */
}

/* -1 if the door is shut. */
static int connect_as_stranger(const gw_address *door) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(fd, &door->any, gw_address_bytes(door)) == 0) return fd;
    close(fd);
    return -1;
}

typedef enum sort { SCANNER, WRONG_TOKEN, GARBAGE, HALF, SILENT, SORTS } sort;

/* What each says right away; the one with the wrong token answers the challenge as well as it can. */
static void speak(int fd, sort kind, int number) {
    uint8_t bytes[256];
    size_t count = 0;
    memset(bytes, 0x5a + number, sizeof bytes);
    if (kind == GARBAGE) count = 1 + (size_t)number * 3;
    if (kind == HALF || kind == WRONG_TOKEN) {
        memcpy(bytes, "GRADWIRE\2\0\0", 12);
        count = kind == HALF ? 1 + (size_t)number * 43 / EACH : GW_AUTH_HELLO_BYTES + GW_AUTH_CLIENT_BYTES;
    }
    if (count) CHECK(send(fd, bytes, count, MSG_NOSIGNAL) > 0);
}

static bool closed(int fd) {
    uint8_t bytes[256];
    ssize_t got;
    do got = recv(fd, bytes, sizeof bytes, MSG_DONTWAIT);
    while (got > 0);
    return got == 0 || (errno != EAGAIN && errno != EWOULDBLOCK);
}

/* Waits, at most that long after the start, until at most `most` are open; returns how many are. */
static int wait_until_closed(int *fds, int count, int most, gw_time start, double seconds) {
    int open_fds = count;
    while (open_fds > most && gw_clock_now() < start + (gw_time)(seconds * (double)GW_SECOND)) {
        open_fds = 0;
        for (int i = 0; i < count; i++) {
            if (fds[i] >= 0 && closed(fds[i])) {
                close(fds[i]);
                fds[i] = -1;
            }
            open_fds += fds[i] >= 0;
        }
        usleep(5000);
    }
    return open_fds;
}

static void start(rank *ranks) {
    for (int i = 0; i < WORLD; i++) CHECK_EQ(0, pthread_create(&ranks[i].thread, NULL, live, &ranks[i]));
}

static void finish(rank *ranks) {
    for (int i = 1; i < WORLD; i++) pthread_join(ranks[i].thread, NULL);
    atomic_store(&over, true);
    pthread_join(ranks[0].thread, NULL);
    for (int i = 0; i < WORLD; i++) {
        CHECK_STR("", ranks[i].error.text);
        CHECK_EQ(GW_OK, ranks[i].status);
        CHECK_EQ(0, ranks[i].errors);
        if (i) CHECK(ranks[i].finished);
        for (int j = 0; j < WORLD; j++)
            if (ranks[i].fd[j] >= 0) close(ranks[i].fd[j]);
    }
}

static void all_sorts_are_turned_away(void) {
    rank ranks[WORLD];
    int fds[SORTS * EACH];
    prepare(ranks);
    gw_address door = *gw_connections_address(ranks[0].connections, 0);
    start(ranks);
    gw_time began = gw_clock_now();
    for (int i = 0; i < SORTS * EACH; i++) {
        fds[i] = connect_as_stranger(&door);
        CHECK(fds[i] >= 0);
        if (fds[i] < 0) continue;
        speak(fds[i], (sort)(i % SORTS), i / SORTS);
        if (i % SORTS != SCANNER) continue;
        close(fds[i]);
        fds[i] = -1;
    }
    CHECK_EQ(0, wait_until_closed(fds, SORTS * EACH, 0, began, TEST_PATIENCE_S));
    finish(ranks);
    CHECK_EQ(SORTS * EACH, gw_connections_strangers(ranks[0].connections));
    for (int i = 0; i < WORLD; i++) gw_connections_close(ranks[i].connections);
}

/* More strangers than half-open connections are allowed. Returns whether the oldest were closed before their timeout.
 */
static bool flood(void) {
    rank ranks[WORLD];
    int *fds = malloc(FLOOD * sizeof *fds);
    prepare(ranks);
    gw_address door = *gw_connections_address(ranks[0].connections, 0);
    start(ranks);
    gw_time began = gw_clock_now();
    for (int i = 0; i < FLOOD; i++) CHECK((fds[i] = connect_as_stranger(&door)) >= 0);
    bool oldest_first =
        wait_until_closed(fds, FLOOD, GW_CONNECTIONS_HALF_OPEN_MAX, began, 1.9) <= GW_CONNECTIONS_HALF_OPEN_MAX;
    CHECK_EQ(0, wait_until_closed(fds, FLOOD, 0, began, TEST_PATIENCE_S));
    finish(ranks);
    CHECK(gw_connections_strangers(ranks[0].connections) >= FLOOD); /* a rank may have had to dial twice */
    for (int i = 0; i < WORLD; i++) gw_connections_close(ranks[i].connections);
    free(fds);
    return oldest_first;
}

/* There is always space for the next connection. */
static void a_flood(void) { CHECK_IN_SOME_TRY(flood()); }

TEST_MAIN(CASE(all_sorts_are_turned_away), CASE(a_flood))
