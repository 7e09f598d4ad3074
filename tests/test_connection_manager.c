/* test_connection_manager.c - dialling, parked connections, closing and timeouts, on a clock that the test sets. */
#include "bootstrap/connection_manager.h"

#include "test.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/wait.h>

/* What a handler was called with. */
typedef struct seen {
    int established, failed, fd;
    bool dialled;
    gw_intro intro;
    gw_traffic_keys keys;
    gw_status status;
    char detail[256];
} seen;

static void on_established(void *ctx, const gw_intro *peer, int fd, bool dialled, const gw_traffic_keys *keys) {
    seen *s = ctx;
    s->established++;
    s->intro = *peer;
    s->keys = *keys;
    s->fd = fd;
    s->dialled = dialled;
}

static void on_failed(void *ctx, const gw_intro *mine, gw_status status, const char *detail) {
    seen *s = ctx;
    s->failed++;
    s->intro = *mine;
    s->status = status;
    snprintf(s->detail, sizeof s->detail, "%s", detail);
}

static gw_connections *open_at(int port, int rank, const char *secret) {
    gw_connections *connections = NULL;
    gw_token token = {0};
    gw_address loopback;
    snprintf(token.text, sizeof token.text, "%s", secret);
    CHECK_EQ(GW_OK, gw_connections_open(&connections, rank, 4, &token, "job", NULL));
    CHECK(gw_address_literal("127.0.0.1", &loopback));
    CHECK_EQ(GW_OK, gw_connections_listen(connections, &loopback, port, port, NULL));
    return connections;
}

static gw_connections *open_connections(int rank, const char *secret) { return open_at(0, rank, secret); }

static void serve(gw_connections *connections, gw_purpose purpose, seen *s) {
    *s = (seen){.fd = -1};
    gw_connections_serve(connections, purpose, &(gw_connection_handler){s, on_established, on_failed});
}

/* Polls both for a while of real time, at the time `now` of the test's clock. */
static void poll_both(gw_connections *a, gw_connections *b, gw_time now, const int *until) {
    for (int i = 0; i < TEST_PATIENCE_S * 1000 && !(until && *until); i++) {
        gw_connections_poll(a, now);
        if (b) gw_connections_poll(b, now);
        if (i > 20) usleep(1000);
        if (!until && i > 40) break;
    }
}

/* The next byte of a connection; -1: it was closed, -2: nothing came. */
static int next_byte(int fd) {
    char byte;
    if (poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, TEST_PATIENCE_S * 1000) != 1) return -2;
    return read(fd, &byte, 1) == 1 ? byte : -1;
}

static gw_intro to(int rank, int from, gw_purpose purpose) {
    return (gw_intro){.purpose = purpose, .from = from, .to = rank, .world = 4, .generation = 6, .stream = 2};
}

typedef struct caller {
    gw_connections *from;
    gw_address to;
    gw_intro intro;
} caller;

static void *dial(void *arg) {
    caller *c = arg;
    CHECK_EQ(GW_OK, gw_connections_dial(c->from, &c->to, 1, &c->intro, 10 * GW_SECOND, NULL));
    return NULL;
}

static void a_dial_from_another_thread(void) {
    gw_connections *a = open_connections(1, "a token of the job"), *b = open_connections(2, "a token of the job");
    seen at_a, at_b;
    serve(a, GW_PURPOSE_DATA, &at_a);
    serve(b, GW_PURPOSE_DATA, &at_b);
    caller c = {a, *gw_connections_address(b, 0), to(2, 1, GW_PURPOSE_DATA)};
    pthread_t thread;
    CHECK_EQ(0, pthread_create(&thread, NULL, dial, &c));
    poll_both(a, b, GW_SECOND, &at_a.established);
    poll_both(a, b, GW_SECOND, &at_b.established);
    pthread_join(thread, NULL);
    CHECK(at_a.dialled && !at_b.dialled);
    CHECK_EQ(2, at_a.intro.from);
    CHECK_EQ(1, at_b.intro.from);
    CHECK_EQ(6, at_b.intro.generation);
    CHECK_EQ(2, at_b.intro.stream);
    for (int side = 0; side < 2; side++) {
        int fd = side ? at_b.fd : at_a.fd, nodelay = 0;
        socklen_t length = sizeof nodelay;
        CHECK_EQ(0, getsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &nodelay, &length));
        CHECK(nodelay);
        CHECK(fcntl(fd, F_GETFL) & O_NONBLOCK);
        CHECK(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    }
    CHECK_EQ(1, write(at_a.fd, "x", 1));
    CHECK_EQ('x', next_byte(at_b.fd));
    CHECK_EQ(UINT64_MAX, gw_connections_next_deadline(b));
    close(at_a.fd);
    close(at_b.fd);
    gw_connections_close(a);
    gw_connections_close(b);
}

/* Connections of a purpose that is not served yet wait for it; of one that is shut they are closed. */
static void parking_and_shutting(void) {
    gw_connections *a = open_connections(1, "a token of the job"), *b = open_connections(2, "a token of the job");
    seen at_a, at_b;
    serve(a, GW_PURPOSE_CONTROL, &at_a);
    gw_intro intro = to(2, 1, GW_PURPOSE_CONTROL);
    gw_connections_dial(a, gw_connections_address(b, 0), 1, &intro, 10 * GW_SECOND, NULL);
    poll_both(a, b, GW_SECOND, &at_a.established);
    poll_both(a, b, GW_SECOND, NULL);
    CHECK_EQ(1, write(at_a.fd, "y", 1));
    serve(b, GW_PURPOSE_CONTROL, &at_b);
    poll_both(b, NULL, 9 * GW_SECOND, &at_b.established); /* no patience runs out for one that has proved itself */
    CHECK_EQ(1, at_b.established);
    CHECK_EQ('y', next_byte(at_b.fd));
    close(at_a.fd);
    close(at_b.fd);

    serve(a, GW_PURPOSE_DATA, &at_a);
    gw_connections_refuse(b, GW_PURPOSE_DATA);
    intro = to(2, 1, GW_PURPOSE_DATA);
    gw_connections_dial(a, gw_connections_address(b, 0), 1, &intro, 10 * GW_SECOND, NULL);
    poll_both(a, b, GW_SECOND, &at_a.established);
    poll_both(a, b, GW_SECOND, NULL);
    CHECK_EQ(-1, next_byte(at_a.fd));
    close(at_a.fd);

    serve(a, GW_PURPOSE_JOIN, &at_a); /* one is left parked for close to find */
    intro = to(2, 1, GW_PURPOSE_JOIN);
    gw_connections_dial(a, gw_connections_address(b, 0), 1, &intro, 10 * GW_SECOND, NULL);
    poll_both(a, b, GW_SECOND, &at_a.established);
    poll_both(a, b, GW_SECOND, NULL);
    close(at_a.fd);
    CHECK_EQ(0, gw_connections_strangers(b));
    gw_connections_close(a);
    gw_connections_close(b);
}

static void dials_that_fail(void) {
    gw_connections *a = open_connections(1, "a token of the job"), *b = open_connections(2, "a token of the job");
    gw_connections *stranger = open_connections(3, "the token of another job");
    seen at_a, at_b;
    serve(b, GW_PURPOSE_DATA, &at_b);

    serve(a, GW_PURPOSE_DATA, &at_a); /* not the rank that was meant: tried until the deadline */
    gw_intro intro = to(3, 1, GW_PURPOSE_DATA);
    gw_connections_dial(a, gw_connections_address(b, 0), 1, &intro, 2 * GW_SECOND, NULL);
    poll_both(a, b, GW_SECOND, NULL);
    CHECK_EQ(0, at_a.failed);
    poll_both(a, b, 2 * GW_SECOND, &at_a.failed);
    CHECK_EQ(GW_PROTOCOL, at_a.status);
    CHECK(strstr(at_a.detail, "is rank 2 of 4, not rank 3") != NULL);
    CHECK_EQ(3, at_a.intro.to);
    CHECK_EQ(0, at_b.established);

    serve(a, GW_PURPOSE_DATA, &at_a); /* another token: at once */
    gw_connections_dial(a, gw_connections_address(stranger, 0), 1, &intro, 90 * GW_SECOND, NULL);
    poll_both(a, stranger, 3 * GW_SECOND, &at_a.failed);
    CHECK_EQ(GW_DENIED, at_a.status);
    poll_both(stranger, NULL, 3 * GW_SECOND, NULL);
    CHECK_EQ(1, gw_connections_strangers(stranger));

    serve(a, GW_PURPOSE_DATA, &at_a); /* the same with a second address, which it tries next */
    gw_address both[2] = {*gw_connections_address(stranger, 0), *gw_connections_address(b, 0)};
    intro = to(2, 1, GW_PURPOSE_DATA);
    gw_connections_dial(a, both, 2, &intro, 90 * GW_SECOND, NULL);
    for (int i = 0; i < 200 && !(at_a.established && at_b.established); i++) {
        gw_connections_poll(stranger, 4 * GW_SECOND);
        poll_both(a, b, 4 * GW_SECOND, NULL);
    }
    CHECK_EQ(1, at_a.established);
    CHECK_EQ(1, at_b.established);
    close(at_a.fd);
    close(at_b.fd);

    gw_address gone = *gw_connections_address(stranger, 0);
    gw_connections_close(stranger);
    serve(a, GW_PURPOSE_DATA, &at_a); /* no listener: retries until the deadline, with growing pauses */
    gw_connections_dial(a, &gone, 1, &intro, 7 * GW_SECOND, NULL);
    for (gw_time now = 5 * GW_SECOND; now < 7 * GW_SECOND; now += 5 * GW_MILLISECOND) gw_connections_poll(a, now);
    CHECK_EQ(0, at_a.failed);
    CHECK(gw_connections_next_deadline(a) <= 7 * GW_SECOND);
    poll_both(a, NULL, 7 * GW_SECOND, &at_a.failed);
    CHECK_EQ(GW_TIMEOUT, at_a.status);
    CHECK(strstr(at_a.detail, "Connection refused") != NULL);
    CHECK_EQ(GW_INVALID, gw_connections_dial(a, &gone, 0, &intro, 0, NULL));
    gw_connections_dial(a, &gone, 1, &intro, 99 * GW_SECOND, NULL); /* left unfinished */
    gw_connections_poll(a, 8 * GW_SECOND);
    gw_connections_close(a);
    gw_connections_close(b);
}

static void patience(void) {
    gw_connections *a = open_connections(1, "a token of the job");
    const gw_address *at = gw_connections_address(a, 0);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK_EQ(0, connect(fd, &at->any, gw_address_bytes(at)));
    poll_both(a, NULL, 10 * GW_SECOND, NULL);
    CHECK_EQ(12 * GW_SECOND, gw_connections_next_deadline(a));
    char byte;
    gw_connections_poll(a, 12 * GW_SECOND - 1);
    CHECK(recv(fd, &byte, 1, MSG_DONTWAIT) == -1 && errno == EAGAIN);
    gw_connections_poll(a, 12 * GW_SECOND);
    CHECK_EQ(-1, next_byte(fd));
    CHECK_EQ(1, gw_connections_strangers(a));
    CHECK_EQ(UINT64_MAX, gw_connections_next_deadline(a));
    close(fd);
    gw_connections_close(a);
}

/* A thief opens connections until it may not. It gets a quarter of the descriptors, and the rank still opens files and
 * takes a peer. */
static void a_thief_of_descriptors(void) {
    enum { LIMIT = 128, THEFTS = 300 };
    struct rlimit files, low;
    gw_connections *a = open_connections(1, "a token of the job"), *b = open_connections(2, "a token of the job");
    gw_address door = *gw_connections_address(b, 0);
    seen at_a, at_b;
    int fds[2];
    serve(a, GW_PURPOSE_DATA, &at_a);
    serve(b, GW_PURPOSE_DATA, &at_b);
    fflush(stdout);
    CHECK_EQ(0, pipe(fds));
    pid_t thief = fork();
    if (thief == 0) {
        char byte;
        for (int i = 0; i < THEFTS; i++) {
            int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
            if (fd < 0 || connect(fd, &door.any, gw_address_bytes(&door)) != 0) _exit(1);
        }
        close(fds[1]);
        _exit(read(fds[0], &byte, 1) != 0); /* keeps them until the end */
    }
    close(fds[0]);
    getrlimit(RLIMIT_NOFILE, &files);
    low = files;
    low.rlim_cur = LIMIT;
    setrlimit(RLIMIT_NOFILE, &low);
    for (int i = 0; i < TEST_PATIENCE_S * 1000 && gw_connections_strangers(b) < THEFTS - LIMIT / 4; i++) {
        gw_connections_poll(b, GW_SECOND);
        usleep(1000);
    }
    CHECK_EQ(THEFTS - LIMIT / 4, gw_connections_strangers(b)); /* the others are half open */
    int opened[LIMIT / 2], count = 0;
    while (count < LIMIT / 2 && (opened[count] = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0) count++;
    CHECK_EQ(LIMIT / 2, count);
    gw_intro intro = to(2, 1, GW_PURPOSE_DATA);
    gw_connections_dial(a, &door, 1, &intro, 10 * GW_SECOND, NULL);
    poll_both(a, b, GW_SECOND, &at_b.established);
    CHECK_EQ(1, at_b.established);
    setrlimit(RLIMIT_NOFILE, &files);
    while (count > 0) close(opened[--count]);
    close(fds[1]);
    int status = 1;
    CHECK_EQ(thief, waitpid(thief, &status, 0));
    CHECK_EQ(0, status);
    close(at_a.fd);
    close(at_b.fd);
    gw_connections_close(a);
    gw_connections_close(b);
}

/* Ranks 0 to 3 with the keys of these two; others have none. */
static void trust(gw_connections *connections, const gw_connections *one, const gw_connections *two) {
    uint8_t keys[4][GW_KEY_BYTES] = {{0}};
    memcpy(keys[gw_connections_rank(one)], gw_connections_public_key(one), GW_KEY_BYTES);
    memcpy(keys[gw_connections_rank(two)], gw_connections_public_key(two), GW_KEY_BYTES);
    CHECK_EQ(GW_OK, gw_connections_trust(connections, (const uint8_t(*)[GW_KEY_BYTES])keys, 4, NULL));
}

/* A third process knows the token, and says that it is rank 1: rank 2 does not take it, whether it learns the keys
 * before or after. Nor does a rank that dials take it for rank 2. */
static void a_rank_that_poses_as_another(void) {
    gw_connections *a = open_connections(1, "a token of the job"), *b = open_connections(2, "a token of the job");
    gw_connections *false_a = open_connections(1, "a token of the job");
    gw_connections *false_b = open_connections(2, "a token of the job");
    seen at_a, at_b, at_false_a, at_false_b;
    gw_intro intro = to(2, 1, GW_PURPOSE_DATA);
    serve(a, GW_PURPOSE_DATA, &at_a);
    serve(false_a, GW_PURPOSE_DATA, &at_false_a);
    serve(false_b, GW_PURPOSE_DATA, &at_false_b);
    gw_connections_dial(false_a, gw_connections_address(b, 0), 1, &intro, 10 * GW_SECOND, NULL);
    poll_both(false_a, b, GW_SECOND, &at_false_a.established); /* parked at b */
    poll_both(false_a, b, GW_SECOND, NULL);
    trust(b, a, b);
    serve(b, GW_PURPOSE_DATA, &at_b);
    poll_both(false_a, b, GW_SECOND, NULL);
    CHECK_EQ(0, at_b.established);
    CHECK_EQ(-1, next_byte(at_false_a.fd));
    close(at_false_a.fd);

    trust(a, a, b);
    gw_connections_dial(a, gw_connections_address(false_b, 0), 1, &intro, 10 * GW_SECOND, NULL);
    poll_both(a, false_b, GW_SECOND, &at_a.failed);
    CHECK_EQ(GW_DENIED, at_a.status);
    CHECK(strstr(at_a.detail, "poses as rank 2") != NULL);
    CHECK_EQ(0, at_a.established);
    if (at_false_b.fd >= 0) close(at_false_b.fd);

    gw_connections_dial(a, gw_connections_address(b, 0), 1, &intro, 10 * GW_SECOND, NULL);
    poll_both(a, b, GW_SECOND, &at_b.established);
    CHECK_EQ(1, at_a.established);
    CHECK_EQ(1, at_b.established);
    CHECK(memcmp(&at_a.keys.send, &at_b.keys.receive, sizeof at_a.keys.send) == 0);
    close(at_a.fd);
    close(at_b.fd);
    gw_connections_close(a);
    gw_connections_close(b);
    gw_connections_close(false_a);
    gw_connections_close(false_b);
}

/* A port that refuses again and again ends a dial to a rank that has listened there, and proves that it is gone. A
 * connection that breaks does not; nor does a refusal where the rank may still be to come. */
static void a_refused_port_is_a_proof(void) {
    gw_connections *a = open_connections(1, "a token of the job"), *b = open_connections(2, "a token of the job");
    seen at_a;
    gw_address address = *gw_connections_address(b, 0);
    gw_intro intro = to(2, 1, GW_PURPOSE_CONTROL);
    gw_connections_close(b);
    serve(a, GW_PURPOSE_CONTROL, &at_a);
    gw_connections_dial(a, &address, 1, &intro, 10 * GW_SECOND, NULL);
    poll_both(a, NULL, GW_SECOND, NULL);
    CHECK_EQ(0, at_a.failed);
    gw_connections_dial_again(a, &address, &intro, 10 * GW_SECOND, NULL);
    for (gw_time now = GW_SECOND; !at_a.failed && now < 9 * GW_SECOND; now += 100 * GW_MILLISECOND)
        poll_both(a, NULL, now, NULL);
    CHECK_EQ(1, at_a.failed);
    CHECK_EQ(GW_PEER_LOST, at_a.status);
    gw_connections_close(a);
}

/* It may be forged, by somebody who does not stand between the ranks all the time. */
static void a_single_refusal_is_none(void) {
    gw_connections *a = open_connections(1, "a token of the job"), *b = open_connections(2, "a token of the job");
    seen at_a, at_b;
    gw_address address = *gw_connections_address(b, 0);
    gw_intro intro = to(2, 1, GW_PURPOSE_CONTROL);
    gw_connections_close(b);
    serve(a, GW_PURPOSE_CONTROL, &at_a);
    gw_connections_dial_again(a, &address, &intro, 10 * GW_SECOND, NULL);
    poll_both(a, NULL, GW_SECOND, NULL);
    CHECK_EQ(0, at_a.failed);
    b = open_at(gw_address_port(&address), 2, "a token of the job");
    serve(b, GW_PURPOSE_CONTROL, &at_b);
    poll_both(a, b, 2 * GW_SECOND, &at_b.established);
    poll_both(a, b, 2 * GW_SECOND, &at_a.established);
    CHECK_EQ(0, at_a.failed);
    close(at_a.fd);
    close(at_b.fd);
    gw_connections_close(a);
    gw_connections_close(b);
}

static void a_broken_connection_is_none(void) {
    gw_connections *a = open_connections(1, "a token of the job");
    seen at_a;
    gw_address address, bound;
    gw_intro intro = to(2, 1, GW_PURPOSE_CONTROL);
    socklen_t length = sizeof bound;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    memset(&bound, 0, sizeof bound);
    CHECK_EQ(0, listen(listener, 4));
    CHECK_EQ(0, getsockname(listener, &bound.any, &length));
    CHECK(gw_address_literal("127.0.0.1", &address));
    gw_address_set_port(&address, gw_address_port(&bound));
    serve(a, GW_PURPOSE_CONTROL, &at_a);
    gw_connections_dial_again(a, &address, &intro, 10 * GW_SECOND, NULL);
    gw_connections_poll(a, GW_SECOND);
    close(accept(listener, NULL, NULL));
    poll_both(a, NULL, GW_SECOND, NULL);
    CHECK_EQ(0, at_a.failed);
    poll_both(a, NULL, 20 * GW_SECOND, &at_a.failed);
    CHECK_EQ(1, at_a.failed);
    CHECK_EQ(GW_TIMEOUT, at_a.status);
    close(listener);
    gw_connections_close(a);
}

TEST_MAIN(CASE(a_dial_from_another_thread), CASE(parking_and_shutting), CASE(dials_that_fail), CASE(patience),
          CASE(a_thief_of_descriptors), CASE(a_rank_that_poses_as_another), CASE(a_refused_port_is_a_proof),
          CASE(a_single_refusal_is_none), CASE(a_broken_connection_is_none))
