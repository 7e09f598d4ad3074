/* test_rdma_relay.c - a relay between two ranks over libfabric's tcp changes one bit, in each part of each kind of
 * message; TCP's own sums are right. With a checksum one of the ranks says so, and no changed message arrives. */
#include "rdma_mesh.h"
#include "transport/rdma/rdma_internal.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>

#define SMALL 1000   /* comes as a message */
#define LARGE 400000 /* is written */

enum { NONE = -1, WRITE = 0 };

typedef struct damage {
    const char *what;
    bool granted; /* the large message; else it is offered */
    int from;
    int kind;  /* NONE, WRITE or a gw_rdma_kind */
    size_t at; /* the byte, of the message; or, of a write, of all that pass */
} damage;

static const damage damages[] = {
    {"nothing, offered", false, 0, NONE, 0},
    {"nothing, granted", true, 0, NONE, 0},
    {"the cookie", false, 0, GW_RDMA_FRAME, 3},
    {"the sender", false, 0, GW_RDMA_FRAME, 17},
    {"the kind", false, 0, GW_RDMA_FRAME, 20},
    {"an operation", false, 0, GW_RDMA_FRAME, 32 + 24},
    {"a length", false, 0, GW_RDMA_FRAME, 32 + 48},
    {"a small payload", false, 0, GW_RDMA_FRAME, GW_RDMA_HEADER_BYTES + 500},
    {"a sum", false, 0, GW_RDMA_FRAME, GW_RDMA_HEADER_BYTES + SMALL + 1},
    {"a granted address", true, 1, GW_RDMA_FRAME, GW_RDMA_HEADER_BYTES + 16},
    {"an offered length", false, 0, GW_RDMA_OFFER, 32 + 48},
    {"an answered address", false, 1, GW_RDMA_CLEAR, GW_RDMA_HEADER_BYTES + 18},
    {"a key", false, 1, GW_RDMA_CLEAR, GW_RDMA_HEADER_BYTES + 24},
    {"a written payload", false, 0, WRITE, 200000},
    {"a written payload, granted", true, 0, WRITE, 200000},
    {"the slot of a write", true, 0, GW_RDMA_WRITTEN, 24},
    {"the payload's sum", true, 0, GW_RDMA_WRITTEN, GW_RDMA_HEADER_BYTES},
};

typedef struct relay {
    pthread_t thread;
    int listener, ends[2]; /* ends[0]: of rank 0, which connects */
    struct sockaddr_in target;
    const uint8_t *cookies[2]; /* in messages from this end */
    const damage *damage;
    uint64_t passed[2]; /* bytes from this end */
    bool changed;
} relay;

/* A message begins with the cookie of its receiver. */
static void change(relay *l, int from, uint8_t *bytes, size_t length) {
    const damage *d = l->damage;
    uint64_t passed = l->passed[from];
    if (l->changed || from != d->from || d->kind == NONE) return;
    if (d->kind == WRITE) {
        if (passed > d->at || passed + length <= d->at) return;
        bytes[d->at - passed] ^= 4;
        l->changed = true;
        return;
    }
    for (uint8_t *at = bytes; (at = memmem(at, (size_t)(bytes + length - at), l->cookies[from], GW_RDMA_COOKIE_BYTES));
         at += GW_RDMA_COOKIE_BYTES) {
        size_t left = (size_t)(bytes + length - at);
        if (left < GW_RDMA_HEADER_BYTES || left <= d->at || at[20] != (uint8_t)d->kind) continue;
        at[d->at] ^= 4;
        l->changed = true;
        return;
    }
}

static bool pass(relay *l, int from) {
    uint8_t bytes[65536];
    ssize_t got = recv(l->ends[from], bytes, sizeof bytes, 0);
    if (got <= 0) return false;
    change(l, from, bytes, (size_t)got);
    l->passed[from] += (uint64_t)got;
    for (ssize_t sent = 0; sent < got;) {
        ssize_t took = send(l->ends[1 - from], bytes + sent, (size_t)(got - sent), MSG_NOSIGNAL);
        if (took <= 0) return false;
        sent += took;
    }
    return true;
}

static void *relay_run(void *ctx) {
    relay *l = ctx;
    l->ends[0] = accept(l->listener, NULL, NULL);
    l->ends[1] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool goes_on = connect(l->ends[1], (void *)&l->target, sizeof l->target) == 0;
    while (goes_on) {
        struct pollfd fds[2] = {{.fd = l->ends[0], .events = POLLIN}, {.fd = l->ends[1], .events = POLLIN}};
        poll(fds, 2, -1);
        for (int i = 0; i < 2 && goes_on; i++)
            if (fds[i].revents) goes_on = pass(l, i);
    }
    close(l->ends[0]);
    close(l->ends[1]);
    return NULL;
}

/* Rank 1 announces the relay's port as its own. */
static void relay_open(relay *l, mesh *m, const damage *d) {
    rdma *zero = (rdma *)m->ranks[0].transport, *one = (rdma *)m->ranks[1].transport;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof address;
    *l = (relay){.damage = d, .ends = {-1, -1}, .cookies = {one->peers[0].expects, zero->peers[1].expects}};
    l->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(bind(l->listener, (void *)&address, bytes) == 0 && listen(l->listener, 1) == 0);
    CHECK(getsockname(l->listener, (void *)&address, &bytes) == 0);
    memcpy(&l->target, one->fabric.address, sizeof l->target);
    ((struct sockaddr_in *)(void *)one->fabric.address)->sin_port = address.sin_port;
    CHECK_EQ(0, pthread_create(&l->thread, NULL, relay_run, l));
}

static void relay_close(relay *l) {
    shutdown(l->listener, SHUT_RDWR); /* where nobody has connected */
    pthread_join(l->thread, NULL);
    close(l->listener);
}

static bool any_lost(const mesh *m) { return m->ranks[0].lost[1] || m->ranks[1].lost[0]; }

/* A small message and a large one from rank 0, which is offered or granted, and an answer. */
static void send_through(const damage *d) {
    mesh *m = rdma_mesh(2, "tcp", (gw_rdma_strict){0}, true);
    relay l;
    relay_open(&l, m, d);
    post(&m->ranks[0], 1, SMALL);
    POLL_UNTIL(m, m->ranks[1].arrived[0] == 1 || any_lost(m));
    if (d->granted) grant(&m->ranks[1], 0, 1, 2, LARGE);
    POLL_UNTIL(m, !d->granted || m->ranks[0].may_send[1] == 2 || any_lost(m));
    if (!any_lost(m)) post(&m->ranks[0], 1, LARGE);
    POLL_UNTIL(m, complete(m) || any_lost(m));
    const mesh_rank *who = &m->ranks[m->ranks[1].lost[0] ? 1 : 0];
    CHECK_EQ(d->kind != NONE, any_lost(m));
    CHECK_EQ(d->kind != NONE ? GW_PROTOCOL : GW_OK, who->lost_status);
    CHECK(d->kind == NONE || strstr(who->lost_detail, "was changed on its way: its checksum is wrong"));
    printf("    %s: %s\n", d->what, who->lost_detail);
    rdma_mesh_close(m);
    relay_close(&l);
    CHECK_EQ(d->kind != NONE, l.changed);
}

static void changes_are_found_out(void) {
    mesh_guarded = MESH_SUMMED;
    for (size_t i = 0; i < sizeof damages / sizeof damages[0]; i++) send_through(&damages[i]);
}

int main(int argc, char **argv) {
    static const test_case cases[] = {CASE(changes_are_found_out)};
    rdma_or_skip();
    return test_main(argc, argv, cases, 1);
}
