/* test_relay.c - a relay without the token stands in all connections between two ranks, reads what passes, and changes
 * it. Under mac every change ends the job with a sentence, and no wrong value; under tls the relay also finds nothing
 * of what the ranks say. Its way in is connect(), which this program defines for the whole process: real sockets on
 * both sides of the relay. */
#include "base/little_endian.h"
#include "bootstrap/auth.h"
#include "small_job.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/syscall.h>

enum { RANKS = 2, FLOATS = 1 << 16, ROUNDS = 20 };
enum { CLIENT_SAYS = GW_AUTH_HELLO_BYTES + GW_AUTH_CLIENT_BYTES + GW_AUTH_PROOF_BYTES };
enum { SERVER_SAYS = GW_AUTH_HELLO_BYTES + GW_AUTH_SERVER_BYTES, AT_PURPOSE = GW_AUTH_HELLO_BYTES + GW_KEY_BYTES };

/* In memory that all processes of a case share. */
typedef struct relay_shared {
    atomic_int alters;            /* the purpose of the connections that the relay changes; 0: none */
    atomic_int changed;           /* bytes so far */
    atomic_int seen[GW_PURPOSES]; /* connections of each purpose */
    atomic_int found[GW_PURPOSES];
    atomic_int wrong; /* values that a rank got with GW_OK */
    int port;
    char strategy[64], needle[64]; /* needle: what the relay looks for */
    size_t needle_bytes;
    gw_status status[RANKS];
    char text[RANKS][512];
} relay_shared;

static relay_shared *shared;
static atomic_int relays; /* of this process */

typedef struct passage {
    int listener, client, server;
    struct sockaddr_in to;
    size_t passed[2]; /* bytes from the client, from the server */
    uint8_t said[CLIENT_SAYS];
    int purpose; /* 0: the client has not said it yet */
} passage;

static int plain_connect(int fd, const struct sockaddr *to, socklen_t bytes) {
    return (int)syscall(SYS_connect, fd, to, bytes);
}

/* The introduction is readable; that is all that the relay needs to know. */
static void look(passage *p, bool up, const uint8_t *bytes, size_t count) {
    for (size_t i = 0; up && i < count && p->passed[0] + i < CLIENT_SAYS; i++) p->said[p->passed[0] + i] = bytes[i];
    if (!p->purpose && up && p->passed[0] + count >= AT_PURPOSE + 4) {
        p->purpose = (int)gw_le_get32(p->said + AT_PURPOSE) % GW_PURPOSES;
        atomic_fetch_add(&shared->seen[p->purpose], 1);
    }
    if (p->purpose && shared->needle_bytes && memmem(bytes, count, shared->needle, shared->needle_bytes))
        atomic_fetch_add(&shared->found[p->purpose], 1);
}

/* One bit in the middle of what is no part of the handshake. */
static void alter(const passage *p, bool up, uint8_t *bytes, size_t count) {
    size_t handshake = up ? CLIENT_SAYS : SERVER_SAYS, before = p->passed[up ? 0 : 1];
    size_t skip = before < handshake ? handshake - before : 0;
    if (!p->purpose || atomic_load(&shared->alters) != p->purpose || skip >= count) return;
    bytes[skip + (count - skip) / 2] ^= 1;
    atomic_fetch_add(&shared->changed, 1);
}

/* False: nothing more comes this way. */
static bool pass(passage *p, bool up) {
    uint8_t bytes[65536];
    int from = up ? p->client : p->server, to = up ? p->server : p->client;
    ssize_t got = recv(from, bytes, sizeof bytes, 0);
    if (got <= 0) shutdown(to, SHUT_WR);
    if (got <= 0) return false;
    look(p, up, bytes, (size_t)got);
    alter(p, up, bytes, (size_t)got);
    p->passed[up ? 0 : 1] += (size_t)got;
    for (ssize_t sent = 0, n; sent < got; sent += n)
        if ((n = send(to, bytes + sent, (size_t)(got - sent), MSG_NOSIGNAL)) <= 0) return false;
    return true;
}

static void *relay(void *arg) {
    passage *p = arg;
    p->client = accept(p->listener, NULL, NULL);
    p->server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool open = p->client >= 0 && plain_connect(p->server, (struct sockaddr *)&p->to, sizeof p->to) == 0;
    struct pollfd fds[2] = {{.fd = open ? p->client : -1, .events = POLLIN},
                            {.fd = open ? p->server : -1, .events = POLLIN}};
    while (fds[0].fd >= 0 || fds[1].fd >= 0) {
        poll(fds, 2, -1);
        for (int i = 0; i < 2; i++)
            if (fds[i].revents && !pass(p, i == 0)) fds[i].fd = -1;
    }
    close(p->client);
    close(p->server);
    close(p->listener);
    free(p);
    atomic_fetch_sub(&relays, 1);
    return NULL;
}

/* A process that ends takes its relays, and what they have not passed on, with it. */
static void let_relays_end(void) {
    for (int i = 0; i < 3000 && atomic_load(&relays); i++) usleep(1000);
}

static bool is_stream(int fd) {
    int type = 0;
    socklen_t bytes = sizeof type;
    return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &bytes) == 0 && type == SOCK_STREAM;
}

/* In place of the C library's: every TCP connection of the ranks goes to a relay of its own. */
int connect(int fd, const struct sockaddr *to, socklen_t bytes) {
    struct sockaddr_in own = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof own;
    pthread_t thread;
    if (!shared || to->sa_family != AF_INET || !is_stream(fd)) return plain_connect(fd, to, bytes);
    passage *p = calloc(1, sizeof *p);
    memcpy(&p->to, to, sizeof p->to);
    p->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(p->listener, (struct sockaddr *)&own, sizeof own) != 0 || listen(p->listener, 1) != 0) abort();
    if (getsockname(p->listener, (struct sockaddr *)&own, &length) != 0) abort();
    atomic_fetch_add(&relays, 1);
    if (pthread_create(&thread, NULL, relay, p) != 0) abort();
    pthread_detach(thread);
    return plain_connect(fd, (struct sockaddr *)&own, sizeof own);
}

/* All-reduces, and more of them until a heartbeat has passed where the relay changes something. */
static gw_status work(gw_comm *comm, int rank) {
    int rounds = atomic_load(&shared->alters) ? 10 * ROUNDS : ROUNDS;
    static float in[FLOATS], out[FLOATS];
    gw_status status = GW_OK;
    for (int i = 0; i < FLOATS; i++) in[i] = 12345.678f + (float)rank;
    for (int round = 0; round < rounds && status == GW_OK; round++) {
        status = gw_allreduce(comm, in, out, FLOATS, GW_F32, GW_SUM);
        for (int i = 0; i < FLOATS && status == GW_OK; i++)
            if (out[i] != 12345.678f + 12346.678f) atomic_fetch_add(&shared->wrong, 1);
        if (round > ROUNDS) usleep(10000);
    }
    return status;
}

static void be_rank(int rank) {
    gw_options options = job_options(rank, RANKS, shared->port, shared->strategy);
    gw_comm *comm = NULL;
    options.deadline_s = 4;
    gw_status status = gw_init(&comm, &options);
    if (status == GW_OK) status = work(comm, rank);
    shared->status[rank] = status;
    snprintf(shared->text[rank], sizeof shared->text[rank], "%s", gw_last_error(comm));
    gw_finalize(comm);
    let_relays_end();
}

/* The relay looks for a float of the payload, or for the name of the host, which is in every record of a rank. */
static void run(const char *security, int alters, bool payload) {
    float value = 12345.678f;
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    snprintf(shared->strategy, sizeof shared->strategy, "transport=tcp:security=%s", security);
    for (int i = 0; payload && i < 4; i++) memcpy(shared->needle + 4 * i, &value, sizeof value);
    shared->needle_bytes = 16;
    if (!payload) gethostname(shared->needle, 17); /* with zeros, as in an endpoint: random bytes are no short name */
    shared->port = free_port();
    atomic_store(&shared->alters, alters);
    job_fork(RANKS, be_rank);
}

static void done(void) {
    munmap(shared, sizeof *shared);
    shared = NULL;
}

/* Every rank has failed, with no wrong value, and one of them says why. */
static void expect_noticed(const char *sentence) {
    bool said = false;
    CHECK(atomic_load(&shared->changed) > 0);
    CHECK_EQ(0, atomic_load(&shared->wrong));
    for (int r = 0; r < RANKS; r++) {
        CHECK(shared->status[r] != GW_OK);
        said |= strstr(shared->text[r], sentence) != NULL;
    }
    if (!said) printf("not said: %s | %s\n", shared->text[0], shared->text[1]);
    CHECK(said);
}

static void expect_nothing_found(void) {
    for (int purpose = 0; purpose < GW_PURPOSES; purpose++) CHECK_EQ(0, atomic_load(&shared->found[purpose]));
}

static void clear_is_readable(void) {
    run("clear", 0, true);
    for (int r = 0; r < RANKS; r++) CHECK_EQ(GW_OK, shared->status[r]);
    CHECK(atomic_load(&shared->seen[GW_PURPOSE_JOIN]) > 0 && atomic_load(&shared->seen[GW_PURPOSE_CONTROL]) > 0);
    CHECK(atomic_load(&shared->found[GW_PURPOSE_DATA]) > 0);
    done();
}

static void an_altered_rendezvous(void) {
    run("mac", GW_PURPOSE_JOIN, false);
    expect_noticed("changed on the way");
    CHECK(atomic_load(&shared->found[GW_PURPOSE_JOIN]) > 0); /* mac hides nothing */
    done();
}

static void an_altered_control_link(void) {
    run("mac", GW_PURPOSE_CONTROL, false);
    expect_noticed("changed on the way");
    done();
    run("tls", GW_PURPOSE_CONTROL, false);
    expect_noticed("changed on the way");
    expect_nothing_found();
    done();
}

static void altered_data(void) {
    run("mac", GW_PURPOSE_DATA, true);
    expect_noticed("was changed on its way");
    done();
    run("tls", GW_PURPOSE_DATA, true);
    expect_noticed("was changed on its way");
    expect_nothing_found();
    done();
}

/* Where nothing is altered, all of it works. */
static void an_honest_relay(void) {
    run("tls", 0, false);
    for (int r = 0; r < RANKS; r++) CHECK_STR("", shared->status[r] ? shared->text[r] : "");
    expect_nothing_found();
    CHECK_EQ(0, atomic_load(&shared->wrong));
    done();
}

TEST_MAIN(CASE(clear_is_readable), CASE(an_altered_rendezvous), CASE(an_altered_control_link), CASE(altered_data),
          CASE(an_honest_relay))
