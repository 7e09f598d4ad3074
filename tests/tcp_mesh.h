/* tcp_mesh.h - for tests of the TCP and the rdma transport: ranks that stand in for the engine (they check every byte,
 * the order, and when callbacks are called), real loopback sockets between them, and deadlines.
 *
 * The bytes of message k from rank s to rank d are a function of (s, d, k, offset). Receive buffers are malloc'd to the
 * byte, so that the address sanitizer sees a stray write. */
#ifndef GW_TESTS_TCP_MESH_H
#define GW_TESTS_TCP_MESH_H

#include "base/clock.h"
#include "test.h"
#include "transport/tcp/tcp.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdatomic.h>
#include <sys/socket.h>

#define MESH_MAX 16
#define MESSAGES_MAX 4096
#define RECV_BUFFERS 1024 /* open at once, from one peer */
#define DEADLINE (TEST_PATIENCE_S * GW_SECOND)

/* What protects the connections that are made from now on. */
typedef enum mesh_guard { MESH_CLEAR, MESH_SUMMED, MESH_MAC, MESH_TLS, MESH_GUARDS } mesh_guard;
static mesh_guard mesh_guarded = MESH_CLEAR;

typedef struct mesh_rank {
    int rank;
    gw_transport *transport;
    struct mesh *mesh;
    uint64_t posted[MESH_MAX], arrived[MESH_MAX]; /* messages, by peer; posted counts the next index */
    uint64_t sent[MESH_MAX];
    bool came[MESH_MAX][MESSAGES_MAX];
    uint8_t *recv_buffer[MESH_MAX][RECV_BUFFERS]; /* by index % RECV_BUFFERS: an unordered transport has several open */
    uint64_t room[MESH_MAX][RECV_BUFFERS];        /* bytes of granted receive buffers; 0: not granted */
    uint64_t may_send[MESH_MAX];                  /* messages that the peer has granted */
    int lost[MESH_MAX];                           /* how often it was reported */
    gw_status lost_status;
    char lost_detail[256];
    uint64_t shown_max;       /* payloads of up to so many bytes may be read in place */
    bool keeps;               /* receive buffers must not be freed */
    bool deaf;                /* recv_buffer() returns NULL */
    bool takes;               /* every other message is used part by part, where the transport supports it */
    uint64_t taken[MESH_MAX]; /* bytes used of such a message */
    bool freed;               /* after reset: no callback may be called */
    void (*on_sent)(struct mesh_rank *n, int peer);
    void (*on_arrived)(struct mesh_rank *n, int peer);
    gw_packet *packets; /* all that were posted, linked by owner */
} mesh_rank;

typedef struct mesh {
    int world;
    mesh_rank ranks[MESH_MAX];
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

static void *rank_recv_buffer(void *ctx, int peer, const gw_frame *frame) {
    mesh_rank *n = ctx;
    CHECK(!n->freed && frame->kind == GW_FRAME_DATA && frame->length > 0);
    if (n->deaf) return NULL;
    uint8_t **slot = &n->recv_buffer[peer][frame->index % RECV_BUFFERS];
    if (n->room[peer][frame->index % RECV_BUFFERS]) return *slot;
    CHECK(*slot == NULL);
    return *slot = malloc(frame->length);
}

static inline bool rank_part(void *ctx, int peer, const gw_frame *frame, uint64_t at, const void *data,
                             uint64_t bytes) {
    mesh_rank *n = ctx;
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

static inline void *rank_granted(void *ctx, int peer, const gw_packet *grant, uint64_t index, uint64_t *bytes) {
    mesh_rank *n = ctx;
    CHECK(!n->freed && index >= grant->first && index < grant->frame.index);
    *bytes = n->room[peer][index % RECV_BUFFERS];
    return n->recv_buffer[peer][index % RECV_BUFFERS];
}

static void rank_arrived(void *ctx, int peer, const gw_frame *frame, const void *data, uint64_t ticket) {
    mesh_rank *n = ctx;
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
        uint8_t **slot = &n->recv_buffer[peer][frame->index % RECV_BUFFERS];
        bool shown = !n->transport->ops->ordered && frame->length <= n->shown_max;
        CHECK((shown || *slot == data) && is_filled(data, peer, n->rank, frame->index, frame->length));
        if (!n->keeps) free(*slot);
        *slot = NULL;
        n->room[peer][frame->index % RECV_BUFFERS] = 0;
    } else {
        CHECK(data == NULL);
    }
    n->arrived[peer]++;
    if (n->on_arrived) n->on_arrived(n, peer);
}

static void rank_sent(void *ctx, int peer, gw_packet *packet) {
    mesh_rank *n = ctx;
    CHECK(!n->freed);
    if (packet->frame.kind == GW_FRAME_GRANT) return;
    if (n->transport->ops->ordered) CHECK_EQ(n->sent[peer], packet->frame.index);
    n->sent[peer]++;
    memset((void *)(uintptr_t)packet->data, 0xee, packet->frame.length); /* it may be reused, so it is */
    if (n->on_sent) n->on_sent(n, peer);
}

static void rank_lost(void *ctx, int peer, gw_status status, const char *detail) {
    mesh_rank *n = ctx;
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
    for (int i = 0; tight && i < 2; i++) CHECK(setsockopt(fds[i], SOL_SOCKET, SO_SNDBUF, &small, sizeof small) == 0);
    close(listener);
}

/* A key for each direction of each connection. */
static inline gw_seal_key mesh_key(int from, int to, int stream) {
    gw_seal_key key;
    memset(key.key, 1 + from * 17 + to * 3 + stream, sizeof key.key);
    memset(key.iv, 2 + from * 5 + to * 29 + stream, sizeof key.iv);
    return key;
}

static inline gw_traffic_keys mesh_keys(int from, int to, int stream) {
    static const gw_security securities[MESH_GUARDS] = {[MESH_MAC] = GW_SECURITY_MAC, [MESH_TLS] = GW_SECURITY_TLS};
    return (gw_traffic_keys){securities[mesh_guarded], mesh_key(from, to, stream), mesh_key(to, from, stream)};
}

static inline void mesh_adopt(mesh_rank *n, int peer, int stream, uint32_t generation, int fd, bool dialled) {
    gw_traffic_keys keys = mesh_keys(n->rank, peer, stream);
    n->transport->ops->adopt(n->transport, peer, stream, generation, fd, dialled, &keys);
}

static inline void join(mesh *m, int from, int to, int stream, uint32_t generation) {
    int fds[2];
    socket_pair(fds, m->tight);
    mesh_adopt(&m->ranks[from], to, stream, generation, fds[0], true);
    mesh_adopt(&m->ranks[to], from, stream, generation, fds[1], false);
}

static void rank_dial(void *ctx, int peer, int stream, uint32_t generation) {
    mesh_rank *n = ctx;
    atomic_fetch_add(&n->mesh->dials, 1);
    if (n->mesh->connects) join(n->mesh, n->rank, peer, stream, generation);
}

static inline mesh *mesh_make(int world, bool tight, bool connects) {
    mesh *m = calloc(1, sizeof *m);
    m->world = world;
    m->tight = tight;
    m->connects = connects;
    for (int r = 0; r < world; r++) {
        m->ranks[r].rank = r;
        m->ranks[r].mesh = m;
    }
    return m;
}

static inline gw_sink rank_sink(mesh_rank *n) {
    return (gw_sink){.ctx = n,
                     .recv_buffer = rank_recv_buffer,
                     .arrived = rank_arrived,
                     .sent = rank_sent,
                     .lost = rank_lost,
                     .granted = rank_granted,
                     .part = rank_part};
}

static inline mesh *mesh_open(int world, int streams, bool tight, bool connects) {
    mesh *m = mesh_make(world, tight, connects);
    for (int r = 0; r < world; r++) {
        mesh_rank *n = &m->ranks[r];
        bool all[MESH_MAX], summed = mesh_guarded == MESH_SUMMED;
        for (int p = 0; p < MESH_MAX; p++) all[p] = true;
        gw_tcp_options options = {
            .rank = r, .world = world, .streams = streams, .congestion = "auto", .summed = summed ? all : NULL};
        CHECK_EQ(GW_OK, gw_tcp_open(&n->transport, &options, rank_sink(n), rank_dial, n, NULL));
        CHECK_EQ(streams == 1, n->transport->ops->ordered);
    }
    return m;
}

/* Posts receive buffers for the messages up to index `count`, of these bytes each, and sends the grant. */
static inline void grant(mesh_rank *n, int peer, uint64_t first, uint64_t count, size_t bytes) {
    gw_packet *packet = malloc(sizeof *packet);
    for (uint64_t i = first; i < count; i++) {
        CHECK(n->recv_buffer[peer][i % RECV_BUFFERS] == NULL);
        n->recv_buffer[peer][i % RECV_BUFFERS] = malloc(bytes);
        n->room[peer][i % RECV_BUFFERS] = bytes;
    }
    *packet = (gw_packet){.frame = {.kind = GW_FRAME_GRANT, .index = count, .count = bytes * 3 + 1}, .first = first};
    packet->owner = n->packets;
    n->packets = packet;
    n->transport->ops->send(n->transport, peer, packet);
}

static inline void post(mesh_rank *n, int peer, size_t bytes) {
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

/* Frees the memory of posted packets; only after reset() or close(). */
static void rank_forget(mesh_rank *n) {
    while (n->packets) {
        gw_packet *next = n->packets->owner;
        free((void *)(uintptr_t)n->packets->data);
        free(n->packets);
        n->packets = next;
    }
    for (int p = 0; p < MESH_MAX; p++) {
        for (int i = 0; i < RECV_BUFFERS; i++) {
            free(n->recv_buffer[p][i]);
            n->recv_buffer[p][i] = NULL;
        }
        memset(n->room[p], 0, sizeof n->room[p]);
        n->posted[p] = n->arrived[p] = n->sent[p] = n->may_send[p] = 0;
        n->lost[p] = 0;
        memset(n->came[p], 0, sizeof n->came[p]);
    }
}

static void rank_close(mesh_rank *n) {
    if (n->transport) n->transport->ops->close(n->transport);
    n->transport = NULL;
    rank_forget(n);
}

static inline void mesh_close(mesh *m) {
    for (int r = 0; r < m->world; r++) rank_close(&m->ranks[r]);
    free(m);
}

static inline bool rank_poll(mesh_rank *n) {
    return n->transport && n->transport->ops->poll(n->transport, gw_clock_now());
}

/* True if everything posted has arrived (where no rank is lost). */
static inline bool complete(const mesh *m) {
    for (int a = 0; a < m->world; a++) {
        for (int b = 0; b < m->world; b++) {
            if (m->ranks[a].posted[b] != m->ranks[b].arrived[a]) return false;
            if (m->ranks[a].posted[b] != m->ranks[a].sent[b]) return false;
        }
    }
    return true;
}

/* Polls all ranks until the condition holds; a CHECK fails at the deadline. */
#define POLL_UNTIL(m, condition)                                                                                       \
    do {                                                                                                               \
        gw_time until_end = gw_clock_now() + DEADLINE;                                                                 \
        while (!(condition) && gw_clock_now() < until_end) {                                                           \
            for (int until_r = 0; until_r < (m)->world; until_r++) rank_poll(&(m)->ranks[until_r]);                    \
        }                                                                                                              \
        CHECK(condition);                                                                                              \
    } while (0)

#endif
