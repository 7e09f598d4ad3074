/* tcp_mesh.h - what the tests of the TCP and the rdma transport share: nodes that play the engine (they check every
 * byte, the order, and that callbacks come when they may), real loopback sockets between them, and deadlines.
 *
 * Message k from rank s to rank d has bytes that are a function of (s, d, k, offset). Landings are malloc'd to the
 * byte, so that the address sanitizer sees a stray write. */
#ifndef GW_TESTS_TCP_MESH_H
#define GW_TESTS_TCP_MESH_H

#include "base/clock.h"
#include "test.h"
#include "transport/tcp.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdatomic.h>
#include <sys/socket.h>

#define MESH_MAX 16
#define MESSAGES_MAX 4096
#define LANDINGS 1024 /* open at once, from one peer */
#define DEADLINE (TEST_PATIENCE_S * GW_SECOND)

typedef struct node {
    int rank;
    gw_transport *transport;
    struct mesh *mesh;
    uint64_t posted[MESH_MAX], arrived[MESH_MAX]; /* messages, by peer; posted counts the next index */
    uint64_t sent[MESH_MAX];
    bool came[MESH_MAX][MESSAGES_MAX];
    uint8_t *landing[MESH_MAX][LANDINGS]; /* by index % LANDINGS: several are open where the transport is not ordered */
    uint64_t room[MESH_MAX][LANDINGS];    /* of landings that were granted, bytes; 0: not granted */
    uint64_t may_send[MESH_MAX];    /* messages that the peer has granted */
    int lost[MESH_MAX];             /* how often it was said */
    gw_status lost_status;
    char lost_detail[256];
    uint64_t shown_max;       /* payloads of up to so many bytes may be shown instead of landed */
    bool keeps;               /* landings are not to be freed */
    bool deaf;                /* landing() has no place */
    bool takes;               /* every other message is used piece by piece, where the transport asks */
    uint64_t taken[MESH_MAX]; /* bytes of the message that is */
    bool freed;               /* after reset: no callback may come */
    void (*on_sent)(struct node *n, int peer);
    void (*on_arrived)(struct node *n, int peer);
    gw_packet *packets; /* all that were posted, linked by owner */
} node;

typedef struct mesh {
    int world;
    node nodes[MESH_MAX];
    bool tight;    /* sockets with small buffers */
    bool connects; /* dial() makes the connection at once; otherwise the test does */
    atomic_int dials;
} mesh;

static inline uint8_t byte_of(int from, int to, uint64_t index, uint64_t offset) {
    uint64_t x = (offset >> 3) * UINT64_C(0x9e3779b97f4a7c15) + index * 1009 + (uint64_t)(from * 17 + to);
    return (uint8_t)((x ^ (x >> 29)) >> ((offset & 7) * 3));
}

static inline void fill(uint8_t *data, int from, int to, uint64_t index, uint64_t bytes) {
    for (uint64_t i = 0; i < bytes; i++) data[i] = byte_of(from, to, index, i);
}

static inline bool is_filled(const uint8_t *data, int from, int to, uint64_t index, uint64_t bytes) {
    for (uint64_t i = 0; i < bytes; i++) {
        if (data[i] != byte_of(from, to, index, i)) return false;
    }
    return true;
}

static void *node_landing(void *ctx, int peer, const gw_frame *frame) {
    node *n = ctx;
    CHECK(!n->freed && frame->kind == GW_FRAME_DATA && frame->length > 0);
    if (n->deaf) return NULL;
    uint8_t **slot = &n->landing[peer][frame->index % LANDINGS];
    if (n->room[peer][frame->index % LANDINGS]) return *slot;
    CHECK(*slot == NULL);
    return *slot = malloc(frame->length);
}

static inline bool node_piece(void *ctx, int peer, const gw_frame *frame, uint64_t at, const void *data,
                              uint64_t bytes) {
    node *n = ctx;
    if (!n->takes || frame->index % 2) return false;
    CHECK(at == n->taken[peer] && at + bytes <= frame->length);
    CHECK((uintptr_t)data % 16 == 0 && (bytes % 16 == 0 || at + bytes == frame->length));
    bool same = true;
    for (uint64_t i = 0; i < bytes; i++)
        same &= ((const uint8_t *)data)[i] == byte_of(peer, n->rank, frame->index, at + i);
    CHECK(same);
    n->taken[peer] += bytes;
    return true;
}

static inline void *node_granted(void *ctx, int peer, const gw_packet *grant, uint64_t index, uint64_t *bytes) {
    node *n = ctx;
    CHECK(!n->freed && index >= grant->first && index < grant->frame.index);
    *bytes = n->room[peer][index % LANDINGS];
    return n->landing[peer][index % LANDINGS];
}

static void node_arrived(void *ctx, int peer, const gw_frame *frame, const void *data, uint64_t ticket) {
    node *n = ctx;
    CHECK(!n->freed && ticket == 0);
    if (frame->kind == GW_FRAME_GRANT) {
        if (frame->index > n->may_send[peer]) n->may_send[peer] = frame->index;
        return;
    }
    if (n->transport->ops->ordered) CHECK_EQ(n->arrived[peer], frame->index);
    CHECK(frame->index < MESSAGES_MAX && !n->came[peer][frame->index]);
    if (frame->index < MESSAGES_MAX) n->came[peer][frame->index] = true;
    CHECK_EQ(frame->length * 3 + 1, frame->count); /* the header came whole */
    if (n->taken[peer] > 0) {
        CHECK(data == NULL && n->taken[peer] == frame->length);
        n->taken[peer] = 0;
    } else if (frame->length > 0) {
        uint8_t **slot = &n->landing[peer][frame->index % LANDINGS];
        bool shown = !n->transport->ops->ordered && frame->length <= n->shown_max;
        CHECK((shown || *slot == data) && is_filled(data, peer, n->rank, frame->index, frame->length));
        if (!n->keeps) free(*slot);
        *slot = NULL;
        n->room[peer][frame->index % LANDINGS] = 0;
    } else {
        CHECK(data == NULL);
    }
    n->arrived[peer]++;
    if (n->on_arrived) n->on_arrived(n, peer);
}

static void node_sent(void *ctx, int peer, gw_packet *packet) {
    node *n = ctx;
    CHECK(!n->freed);
    if (packet->frame.kind == GW_FRAME_GRANT) return;
    if (n->transport->ops->ordered) CHECK_EQ(n->sent[peer], packet->frame.index);
    n->sent[peer]++;
    memset((void *)(uintptr_t)packet->data, 0xee, packet->frame.length); /* it may be reused, so it is */
    if (n->on_sent) n->on_sent(n, peer);
}

static void node_lost(void *ctx, int peer, gw_status status, const char *detail) {
    node *n = ctx;
    CHECK(!n->freed);
    n->lost[peer]++;
    n->lost_status = status;
    snprintf(n->lost_detail, sizeof n->lost_detail, "%s", detail);
}

/* Two ends of one loopback connection, non-blocking. Tight: writes of a few KiB at most, in segments as of Ethernet. (A
 * receive buffer smaller than loopback's 64 KiB segments would only test the kernel's patience with its own window.) */
static void socket_pair(int fds[2], bool tight) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    fds[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int segment = 1448, small = 1;
    if (tight) CHECK(setsockopt(listener, IPPROTO_TCP, TCP_MAXSEG, &segment, sizeof segment) == 0);
    CHECK(bind(listener, (void *)&address, bytes) == 0 && listen(listener, 1) == 0);
    CHECK(getsockname(listener, (void *)&address, &bytes) == 0);
    CHECK(connect(fds[0], (void *)&address, bytes) == 0);
    fds[1] = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    CHECK(fds[1] >= 0 && fcntl(fds[0], F_SETFL, O_NONBLOCK) == 0);
    for (int i = 0; tight && i < 2; i++)
        CHECK(setsockopt(fds[i], SOL_SOCKET, SO_SNDBUF, &small, sizeof small) == 0);
    close(listener);
}

static inline void join(mesh *m, int from, int to, int stream, uint32_t generation) {
    int fds[2];
    socket_pair(fds, m->tight);
    gw_transport *a = m->nodes[from].transport, *b = m->nodes[to].transport;
    a->ops->adopt(a, to, stream, generation, fds[0], true);
    b->ops->adopt(b, from, stream, generation, fds[1], false);
}

static void node_dial(void *ctx, int peer, int stream, uint32_t generation) {
    node *n = ctx;
    atomic_fetch_add(&n->mesh->dials, 1);
    if (n->mesh->connects) join(n->mesh, n->rank, peer, stream, generation);
}

static inline mesh *mesh_make(int world, bool tight, bool connects) {
    mesh *m = calloc(1, sizeof *m);
    m->world = world;
    m->tight = tight;
    m->connects = connects;
    for (int r = 0; r < world; r++) {
        m->nodes[r].rank = r;
        m->nodes[r].mesh = m;
    }
    return m;
}

static inline gw_sink node_sink(node *n) {
    return (gw_sink){.ctx = n, .landing = node_landing, .arrived = node_arrived, .sent = node_sent, .lost = node_lost,
                     .granted = node_granted, .piece = node_piece};
}

static inline mesh *mesh_open(int world, int streams, bool tight, bool connects) {
    mesh *m = mesh_make(world, tight, connects);
    for (int r = 0; r < world; r++) {
        node *n = &m->nodes[r];
        gw_tcp_options options = {r, world, streams, "auto", 0};
        CHECK_EQ(GW_OK, gw_tcp_open(&n->transport, &options, node_sink(n), node_dial, n, NULL));
        CHECK_EQ(streams == 1, n->transport->ops->ordered);
    }
    return m;
}

/* Landings for the messages up to index `count`, of these bytes each, and the frame that tells of them. */
static inline void grant(node *n, int peer, uint64_t first, uint64_t count, size_t bytes) {
    gw_packet *packet = malloc(sizeof *packet);
    for (uint64_t i = first; i < count; i++) {
        CHECK(n->landing[peer][i % LANDINGS] == NULL);
        n->landing[peer][i % LANDINGS] = malloc(bytes);
        n->room[peer][i % LANDINGS] = bytes;
    }
    *packet = (gw_packet){.frame = {.kind = GW_FRAME_GRANT, .index = count, .count = bytes * 3 + 1}, .first = first};
    packet->owner = n->packets;
    n->packets = packet;
    n->transport->ops->send(n->transport, peer, packet);
}

static void post(node *n, int peer, size_t bytes) {
    gw_packet *packet = malloc(sizeof *packet);
    uint64_t index = n->posted[peer]++;
    uint8_t *data = malloc(bytes + 1);
    fill(data, n->rank, peer, index, bytes);
    *packet = (gw_packet){.frame = {.kind = GW_FRAME_DATA, .index = index, .length = bytes, .count = bytes * 3 + 1}};
    packet->data = data;
    packet->owner = n->packets;
    n->packets = packet;
    n->transport->ops->send(n->transport, peer, packet);
}

/* Frees what was lent to the transport; only after reset() or close(). */
static void node_forget(node *n) {
    while (n->packets) {
        gw_packet *next = n->packets->owner;
        free((void *)(uintptr_t)n->packets->data);
        free(n->packets);
        n->packets = next;
    }
    for (int p = 0; p < MESH_MAX; p++) {
        for (int i = 0; i < LANDINGS; i++) {
            free(n->landing[p][i]);
            n->landing[p][i] = NULL;
        }
        memset(n->room[p], 0, sizeof n->room[p]);
        n->posted[p] = n->arrived[p] = n->sent[p] = n->may_send[p] = 0;
        n->lost[p] = 0;
        memset(n->came[p], 0, sizeof n->came[p]);
    }
}

static void node_close(node *n) {
    if (n->transport) n->transport->ops->close(n->transport);
    n->transport = NULL;
    node_forget(n);
}

static void mesh_close(mesh *m) {
    for (int r = 0; r < m->world; r++) node_close(&m->nodes[r]);
    free(m);
}

static inline bool node_poll(node *n) { return n->transport && n->transport->ops->poll(n->transport, gw_clock_now()); }

/* Everything posted is here (where nobody is lost). */
static inline bool complete(const mesh *m) {
    for (int a = 0; a < m->world; a++) {
        for (int b = 0; b < m->world; b++) {
            if (m->nodes[a].posted[b] != m->nodes[b].arrived[a]) return false;
            if (m->nodes[a].posted[b] != m->nodes[a].sent[b]) return false;
        }
    }
    return true;
}

/* Polls all nodes until the condition holds; a CHECK fails at the deadline. */
#define POLL_UNTIL(m, condition)                                                                                       \
    do {                                                                                                               \
        gw_time until_end = gw_clock_now() + DEADLINE;                                                                 \
        while (!(condition) && gw_clock_now() < until_end) {                                                           \
            for (int until_r = 0; until_r < (m)->world; until_r++) node_poll(&(m)->nodes[until_r]);                    \
        }                                                                                                              \
        CHECK(condition);                                                                                              \
    } while (0)

#endif
