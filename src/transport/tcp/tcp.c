/* tcp.c - see tcp.h. Connections, the mailbox where other threads put new ones, and epoll.
 *
 * Each poll() calls epoll_wait once, whether the caller spins or sleeps: an empty epoll_wait costs less than an empty
 * recv (155 against 410 ns, Linux 6.18), and it does not compete with the sender for the socket's lock. But a single
 * peer is read directly between messages: two ranks exchange a few bytes in 7.3 us instead of 8.0. */
#include "transport/tcp/tcp_internal.h"

#include "base/clock.h"
#include "base/fork_descriptors.h"
#include "base/log.h"
#include "bootstrap/congestion.h"

#include <assert.h>
#include <errno.h>
#include <linux/sockios.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define EVENTS 64
#define STREAMS_MAX 64
#define DIRECT_TURNS                                                                                                   \
    8 /* with a single peer, one in this many polls calls epoll: for the bell and other connections                    \
       */
#define DRAIN (2 * GW_SECOND) /* closing waits this long for the peers to acknowledge the last bytes */
/* An honest peer needs fewer; one that lies must not fill memory and descriptors. */
#define CONNS_MAX 2                /* of a stream in one generation: each side dials once */
#define PENDING_MAX 8              /* of later generations: connections for each stream of a peer */
#define LOOK (50 * GW_MILLISECOND) /* between two looks at the congestion control of all connections */

/* A socket that is closed with unread data, or that gets data after it was closed, sends a reset, which discards what
 * has not arrived at the peer. Read on until the peer has acknowledged everything. */
static void drain(gw_tcp_conn *conn, gw_time until) {
    uint8_t scrap[4096];
    int unacknowledged = 1;
    if (conn->fd < 0 || shutdown(conn->fd, SHUT_WR) != 0) return;
    while (unacknowledged) {
        ssize_t got = recv(conn->fd, scrap, sizeof scrap, 0);
        if (got > 0 && gw_clock_now() < until) continue;
        if (got >= 0 || errno != EAGAIN || gw_clock_now() >= until) return;
        if (ioctl(conn->fd, SIOCOUTQ, &unacknowledged) != 0) return;
        if (unacknowledged) poll(&(struct pollfd){.fd = conn->fd, .events = POLLIN}, 1, 2);
    }
}

/* ---- the mailbox: any thread ---- */

static void post(gw_tcp *t, gw_tcp_conn *conn) {
    gw_tcp_conn *first = atomic_load_explicit(&t->mailbox, memory_order_relaxed);
    do conn->next = first;
    while (
        !atomic_compare_exchange_weak_explicit(&t->mailbox, &first, conn, memory_order_release, memory_order_relaxed));
    uint64_t one = 1;
    ssize_t rung = write(t->bell, &one, sizeof one);
    (void)rung; /* fails only when the eventfd is full, and so readable */
}

static gw_tcp_conn *make_conn(gw_tcp *t, int peer, int stream, uint32_t generation, int fd, const gw_traffic_keys *keys,
                              gw_error *error) {
    gw_tcp_guard guard;
    bool exists = peer >= 0 && peer < t->world && peer != t->rank && stream >= 0 && stream < t->streams;
    if (!exists) {
        gw_fail(error, GW_PROTOCOL, "there is none here; set world and streams alike on all ranks");
        return NULL;
    }
    if (gw_tcp_guard_open(&guard, keys, t->summed[peer], error) != GW_OK) return NULL;
    gw_tcp_conn *conn = gw_tcp_conn_make(peer, stream, generation, fd, &guard);
    if (conn) return conn;
    gw_tcp_guard_close(&guard);
    gw_fail(error, GW_MEMORY, "out of memory");
    return NULL;
}

void gw_tcp_adopt(gw_transport *transport, int peer, int stream, uint32_t generation, int fd, bool dialled,
                  const gw_traffic_keys *keys) {
    gw_tcp *t = (gw_tcp *)transport;
    gw_error error = {0};
    gw_tcp_conn *conn = make_conn(t, peer, stream, generation, fd, keys, &error);
    if (!conn) { /* the peer sees it close and reports that */
        gw_log(GW_LOG_ERROR, t->rank, "stream %d of rank %d was refused: %s", stream, peer, error.text);
        gw_fd_close(fd);
        return;
    }
    gw_tcp_conn_prepare(conn, t->rank, t->congestion, t->socket_buffer);
    gw_log(GW_LOG_DEBUG, t->rank, "stream %d %s rank %d, generation %u, %s", stream, dialled ? "to" : "from", peer,
           (unsigned)generation, gw_tcp_guard_name(&conn->guard));
    post(t, conn);
}

void gw_tcp_refused(gw_transport *transport, int peer, uint32_t generation, gw_status status, const char *detail) {
    gw_tcp *t = (gw_tcp *)transport;
    assert(peer >= 0 && peer < t->world && status != GW_OK);
    gw_tcp_conn *conn = gw_tcp_conn_refusal(peer, generation, status, detail);
    if (conn) post(t, conn);
    else gw_log(GW_LOG_ERROR, t->rank, "rank %d cannot be reached: %s", peer, detail); /* until the deadline */
}

/* ---- connections ---- */

/* A refusal matters only while packets wait for a connection to that peer. */
static bool awaited(const gw_tcp *t, int peer) {
    const gw_tcp_out_stream *l = &t->streams_out[(size_t)peer * (size_t)t->streams];
    for (int s = 0; s < t->streams; s++) {
        if (l[s].dialled && !l[s].out) return true;
    }
    return false;
}

static gw_tcp_out_stream *stream_of(gw_tcp *t, const gw_tcp_conn *conn) {
    return &t->streams_out[(size_t)conn->peer * (size_t)t->streams + (size_t)conn->stream];
}

static void refuse_surplus(gw_tcp *t, gw_tcp_conn *conn) {
    gw_log(t->surplus ? GW_LOG_DEBUG : GW_LOG_WARN, t->rank,
           "a connection of rank %d for stream %d was refused: it has more than it needs", conn->peer, conn->stream);
    t->surplus = true;
    gw_tcp_conn_free(conn);
}

/* A connection, or a refusal, of this generation. */
static void install(gw_tcp *t, gw_tcp_conn *conn) {
    if (t->lost[conn->peer] || (conn->fd < 0 && !awaited(t, conn->peer))) {
        gw_tcp_conn_free(conn);
        return;
    }
    if (conn->fd >= 0 && stream_of(t, conn)->conns++ >= CONNS_MAX) {
        refuse_surplus(t, conn);
        return;
    }
    conn->next = t->open;
    t->open = conn;
    if (conn->fd < 0) {
        t->unsettled = true;
        return;
    }
    gw_tcp_watch(t, conn, EPOLL_CTL_ADD, false);
    gw_tcp_out_stream *l = stream_of(t, conn);
    if (l->out) return;
    l->out = conn;
    gw_tcp_want(t, l, false);
    if (l->queue.head) gw_tcp_flush(t, l);
}

static void keep_for_later(gw_tcp *t, gw_tcp_conn *conn) {
    int kept = 0;
    for (const gw_tcp_conn *other = t->pending; other; other = other->next) kept += other->peer == conn->peer;
    if (kept >= PENDING_MAX * t->streams) {
        refuse_surplus(t, conn);
        return;
    }
    conn->next = t->pending;
    t->pending = conn;
}

/* Installs the connections of this generation, keeps later ones, and drops the rest. */
static void sort_in(gw_tcp *t, gw_tcp_conn *list) {
    while (list) {
        gw_tcp_conn *conn = list;
        list = conn->next;
        if (conn->generation == t->generation) {
            install(t, conn);
        } else if (conn->generation > t->generation) {
            keep_for_later(t, conn);
        } else {
            gw_tcp_conn_free(conn);
        }
    }
}

static bool take_mail(gw_tcp *t) {
    if (!atomic_load_explicit(&t->mailbox, memory_order_relaxed)) return false;
    gw_tcp_conn *latest = atomic_exchange_explicit(&t->mailbox, NULL, memory_order_acquire), *list = NULL;
    while (latest) {
        gw_tcp_conn *next = latest->next;
        latest->next = list;
        list = latest;
        latest = next;
    }
    sort_in(t, list);
    return true;
}

static void shut(gw_tcp *t, gw_tcp_conn *conn) {
    if (conn == t->last_read) t->last_read = NULL;
    conn->recv_buffer = NULL; /* the buffer is the engine's again */
    conn->left = 0;
    conn->in_place = 0;
    if (conn->fd < 0) return;
    epoll_ctl(t->epoll, EPOLL_CTL_DEL, conn->fd, NULL); /* a forked child may hold the socket: closing is not enough */
    gw_fd_close(conn->fd);
    conn->fd = -1;
}

/* The peer is lost if one of its connections broke, or all were closed. After an orderly close of one of several, the
 * others are first read to their end. */
static void settle_peer(gw_tcp *t, gw_tcp_conn *ended) {
    bool all = true;
    for (gw_tcp_conn *conn = t->open; conn; conn = conn->next) {
        if (conn->peer == ended->peer && conn->status == GW_OK) all = false;
    }
    shut(t, ended);
    if (ended->orderly && !all) return;
    for (gw_tcp_conn *conn = t->open; conn; conn = conn->next) {
        if (conn->peer != ended->peer) continue;
        if (conn->status == GW_OK) conn->status = ended->status;
        shut(t, conn);
    }
    t->lost[ended->peer] = true;
    t->base.sink.lost(t->base.sink.ctx, ended->peer, ended->status, ended->detail);
}

static bool settle(gw_tcp *t) {
    if (!t->unsettled) return false;
    t->unsettled = false;
    for (gw_tcp_conn *conn = t->open; conn; conn = conn->next) {
        if (conn->status != GW_OK && !t->lost[conn->peer]) settle_peer(t, conn);
    }
    return true;
}

/* ---- polling ---- */

/* Clears the bell. The next poll() takes the posted connections, or arm() reports them. */
static void hush(gw_tcp *t) {
    uint64_t rings;
    ssize_t got = read(t->bell, &rings, sizeof rings);
    (void)got;
}

static bool read_from(gw_tcp *t, gw_tcp_conn *conn) {
    bool moved = gw_tcp_conn_read(conn, &t->base.sink);
    t->unsettled |= conn->status != GW_OK;
    t->last_read = conn->status == GW_OK && t->world == 2 && t->streams == 1 ? conn : NULL;
    return moved;
}

static bool receive(gw_tcp *t) {
    bool direct = t->last_read && t->last_read->left == 0 && t->backlog_count == 0;
    if (direct && t->polls++ % DIRECT_TURNS) return read_from(t, t->last_read);
    struct epoll_event events[EVENTS];
    int count = epoll_wait(t->epoll, events, EVENTS, 0);
    bool moved = false;
    for (int i = 0; i < count; i++) {
        gw_tcp_conn *conn = events[i].data.ptr;
        if (!conn) {
            hush(t);
            continue;
        }
        if (events[i].events & EPOLLOUT) {
            t->streams_out[(size_t)conn->peer * (size_t)t->streams + (size_t)conn->stream].blocked = false;
            if (events[i].events == EPOLLOUT) continue;
        }
        moved |= read_from(t, conn);
    }
    return moved;
}

/* A look costs a system call for each connection. */
static void look_at_congestion(gw_tcp *t, gw_time now) {
    t->look = now + LOOK;
    for (gw_tcp_conn *conn = t->open; conn; conn = conn->next)
        if (conn->fd >= 0) gw_tcp_congestion_look(&conn->congestion, conn->fd, now, t->rank, conn->peer);
}

static bool tcp_poll(gw_transport *transport, gw_time now) {
    gw_tcp *t = (gw_tcp *)transport;
    t->inside = true;
    bool moved = take_mail(t);
    moved |= gw_tcp_flush_backlog(t);
    if (moved || t->open) moved |= receive(t); /* without a connection: no system call */
    moved |= gw_tcp_dial_overdue(t, now);
    moved |= settle(t);
    if (now >= t->look) look_at_congestion(t, now);
    t->inside = false;
    return moved;
}

static int tcp_wait_fd(gw_transport *transport) { return ((gw_tcp *)transport)->epoll; }

/* epoll is always armed, but it does not report work that was left for the next poll(): this function does. */
static bool tcp_arm(gw_transport *transport, bool sleeping) {
    gw_tcp *t = (gw_tcp *)transport;
    for (gw_tcp_conn *conn = t->open; conn; conn = conn->next) gw_tcp_conn_doze(conn, sleeping);
    if (!sleeping) return false;
    if (t->unsettled || t->wanting || atomic_load_explicit(&t->mailbox, memory_order_relaxed)) return true;
    for (int i = 0; i < t->backlog_count; i++) {
        if (!t->backlog[i]->blocked) return true;
    }
    return false;
}

static void tcp_release(gw_transport *transport, int peer, uint64_t ticket) {
    (void)transport, (void)peer, (void)ticket; /* payloads are copied, never lent */
}

/* ---- life ---- */

static void free_list(gw_tcp_conn **list) {
    while (*list) {
        gw_tcp_conn *next = (*list)->next;
        gw_tcp_conn_free(*list);
        *list = next;
    }
}

static void tcp_reset(gw_transport *transport, uint32_t generation) {
    gw_tcp *t = (gw_tcp *)transport;
    assert(!t->inside && generation >= t->generation);
    for (gw_tcp_conn *conn = t->open; conn; conn = conn->next) shut(t, conn);
    free_list(&t->open);
    for (int p = 0; p < t->world; p++) {
        t->lost[p] = false;
        for (int s = 0; s < t->streams; s++) t->streams_out[p * t->streams + s] = (gw_tcp_out_stream){.peer = p};
    }
    t->backlog_count = 0;
    t->wanting = 0;
    t->unsettled = false;
    t->generation = generation;
    gw_tcp_conn *pending = t->pending;
    t->pending = NULL;
    sort_in(t, pending);
}

static void tcp_close(gw_transport *transport) {
    gw_tcp *t = (gw_tcp *)transport;
    assert(!t->inside);
    gw_tcp_conn *mail = atomic_exchange(&t->mailbox, NULL);
    free_list(&mail);
    free_list(&t->pending);
    gw_time until = gw_clock_now() + DRAIN;
    for (gw_tcp_conn *conn = t->open; conn; conn = conn->next) drain(conn, until);
    free_list(&t->open);
    gw_fd_close(t->bell);
    gw_fd_close(t->epoll);
    free(t->backlog);
    free(t->streams_out);
    free(t->lost);
    free(t->summed);
    free(t);
}

static bool tcp_unanswered(gw_transport *transport, int peer, gw_unanswered *packets) {
    gw_tcp *t = (gw_tcp *)transport;
    bool found = false;
    for (int s = 0; s < t->streams; s++) {
        const gw_tcp_conn *conn = t->streams_out[(size_t)peer * (size_t)t->streams + (size_t)s].out;
        found = (conn && gw_tcp_unanswered(conn->fd, packets)) || found;
    }
    return found;
}

#define OPS(is_ordered)                                                                                                \
    {                                                                                                                  \
        .name = "tcp", .ordered = is_ordered, .hangs_up = true, .send = gw_tcp_send, .release = tcp_release,           \
        .poll = tcp_poll, .wait_fd = tcp_wait_fd, .arm = tcp_arm, .reset = tcp_reset, .close = tcp_close,              \
        .unanswered = tcp_unanswered, .adopt = gw_tcp_adopt, .refused = gw_tcp_refused                                 \
    }

static const gw_transport_ops one_stream = OPS(true), several_streams = OPS(false);

static gw_status check(const gw_tcp_options *o, const char *congestion, gw_error *error) {
    static const char *const known[] = {"auto", "system", "cubic", "bbr", "reno"};
    if (o->world < 1 || o->rank < 0 || o->rank >= o->world)
        return gw_fail(error, GW_INVALID, "tcp: rank %d is not one of a world of %d", o->rank, o->world);
    if (o->streams < 1 || o->streams > STREAMS_MAX)
        return gw_fail(error, GW_INVALID, "tcp: streams is %d; choose 1 to %d", o->streams, STREAMS_MAX);
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (strcmp(congestion, known[i]) == 0) return GW_OK;
    }
    return gw_fail(error, GW_INVALID, "tcp: congestion is \"%s\"; choose auto, system, cubic, bbr or reno", congestion);
}

static gw_status set_up(gw_tcp *t, const bool *summed, gw_error *error) {
    size_t count = (size_t)t->world * (size_t)t->streams;
    t->lost = calloc((size_t)t->world, sizeof *t->lost);
    t->summed = calloc((size_t)t->world, sizeof *t->summed);
    t->streams_out = calloc(count, sizeof *t->streams_out);
    t->backlog = calloc(count, sizeof(gw_tcp_out_stream *));
    if (!t->lost || !t->summed || !t->streams_out || !t->backlog)
        return gw_fail(error, GW_MEMORY, "tcp: no memory for %d peers with %d streams", t->world, t->streams);
    if (summed) memcpy(t->summed, summed, (size_t)t->world * sizeof *summed);
    tcp_reset(&t->base, 0);
    struct epoll_event event = {.events = EPOLLIN};
    t->epoll = gw_fd_register(epoll_create1(EPOLL_CLOEXEC));
    t->bell = gw_fd_register(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (t->epoll < 0 || t->bell < 0 || epoll_ctl(t->epoll, EPOLL_CTL_ADD, t->bell, &event) != 0)
        return gw_fail(error, GW_SYSTEM, "tcp: no epoll or eventfd: %s; see ulimit -n", strerror(errno));
    return GW_OK;
}

gw_status gw_tcp_open(gw_transport **out, const gw_tcp_options *options, gw_sink sink, gw_dial dial, void *dial_ctx,
                      gw_error *error) {
    const char *congestion = options->congestion ? options->congestion : "auto";
    gw_status status = check(options, congestion, error);
    if (status != GW_OK) return status;
    gw_tcp *t = calloc(1, sizeof *t);
    if (!t) return gw_fail(error, GW_MEMORY, "tcp: no memory for the transport");
    t->base = (gw_transport){options->streams == 1 ? &one_stream : &several_streams, sink};
    t->rank = options->rank;
    t->world = options->world;
    t->streams = options->streams;
    t->socket_buffer = options->socket_buffer;
    t->dial = dial;
    t->dial_ctx = dial_ctx;
    t->epoll = t->bell = -1;
    snprintf(t->congestion, sizeof t->congestion, "%s", congestion);
    status = set_up(t, options->summed, error);
    if (status != GW_OK) goto fail;
    *out = &t->base;
    return GW_OK;
fail:
    tcp_close(&t->base);
    return status;
}
