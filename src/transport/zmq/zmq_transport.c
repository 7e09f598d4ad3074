/* zmq_transport.c - see zmq_transport.h: opening, polling, sleeping, resetting and closing. A message has up to three
 * parts: the sender's routing id (added by the ROUTER), a head (number, frame, small payload), and a large payload. A
 * head with only the number is the last message of a peer that leaves. */
#include "base/fork_descriptors.h"
#include "base/log.h"
#include "bootstrap/listen.h"
#include "transport/transport_registry.h"
#include "transport/zmq/zmq_internal.h"

#include <errno.h>
#include <malloc.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define TURN_BYTES ((uint64_t)1 << 20) /* received by one poll() at most */
#define CHUNK_BYTES (512 * 1024)       /* half of it doubles the time of 1 MiB: more hand-overs to the I/O thread */
#define KEPT_BYTES (64 << 20)          /* that malloc keeps for later messages */
#define QUEUED_MAX 256                 /* messages of one peer that wait here; then ZeroMQ reads no more from it */
#define MESSAGE_BYTES_MAX ((int64_t)1100 << 20) /* above the largest chunk that a strategy can ask for (1 GiB) */
#define LINGER_MS 1000                          /* close() waits this long for the last messages to leave */
#define LET_GO (10 * GW_SECOND)                 /* reset() waits this long for the I/O thread to release lent memory */

/* ---- polling ---- */

static bool settle(zmq *z) {
    if (!z->unsettled) return false;
    z->unsettled = false;
    for (int r = 0; r < z->world; r++) {
        peer *p = &z->peers[r];
        if (!p->broken || p->lost) continue;
        p->lost = true;
        z->base.sink.lost(z->base.sink.ctx, r, p->broken, p->detail);
    }
    return true;
}

static bool zmq_transport_poll(gw_transport *transport, gw_time now) {
    (void)now; /* deadlines are the engine's */
    zmq *z = (zmq *)transport;
    bool moved = gw_zmq_give_back(z);
    moved |= gw_zmq_release_held(z);
    uint64_t sum = 0, bytes = 0;
    while (sum < TURN_BYTES && gw_zmq_receive(z, &bytes)) {
        sum += bytes;
        moved = true;
    }
    return settle(z) || moved;
}

static int zmq_wait_fd(gw_transport *transport) { return ((zmq *)transport)->epoll; }

/* The ROUTER's descriptor is edge-triggered: it reports only messages that came after ZMQ_EVENTS was last read. */
static bool zmq_arm(gw_transport *transport, bool sleeping) {
    zmq *z = (zmq *)transport;
    atomic_store(&z->asleep, sleeping);
    uint64_t rings;
    ssize_t got = read(z->bell, &rings, sizeof rings);
    (void)got; /* empty is fine */
    if (!sleeping) return false;
    int events = 0;
    size_t bytes = sizeof events;
    zmq_getsockopt(z->router, ZMQ_EVENTS, &events, &bytes);
    return (events & ZMQ_POLLIN) || z->unsettled || atomic_load(&z->done) != NULL;
}

static void zmq_release(gw_transport *transport, int number, uint64_t ticket) {
    (void)transport, (void)number, (void)ticket; /* payloads are shown only while arrived() runs */
}

/* ---- life ---- */

static void close_dealers(zmq *z) {
    for (int r = 0; r < z->world; r++) {
        if (z->peers[r].dealer) zmq_close(z->peers[r].dealer);
        z->peers[r].dealer = NULL;
    }
}

static void zmq_reset(gw_transport *transport, uint32_t generation) {
    zmq *z = (zmq *)transport;
    close_dealers(z); /* their linger is zero: the I/O thread drops the messages in them */
    for (gw_time until = gw_clock_now() + LET_GO; atomic_load(&z->lent) > 0 && gw_clock_now() < until;) usleep(50);
    if (atomic_load(&z->lent) > 0)
        gw_log(GW_LOG_ERROR, z->rank,
               "ZeroMQ still holds %d messages after a reset, and may read memory that has been "
               "given back: end this program",
               atomic_load(&z->lent));
    atomic_store(&z->done, NULL);
    for (int r = 0; r < z->world; r++) {
        peer *p = &z->peers[r];
        p->sent = p->received = 0;
        p->lost = p->left = p->tuned = false;
        p->broken = GW_OK;
    }
    z->unsettled = false;
    z->generation = generation;
}

/* Says goodbye to every peer that has not left. Peers to which nothing was sent get a goodbye too, because they cannot
 * know that. */
static void take_leave(zmq *z) {
    uint64_t bytes;
    z->closing = true;
    for (int i = 0; i < 1024 && gw_zmq_receive(z, &bytes); i++) {}
    for (int r = 0; r < z->world; r++) {
        peer *p = &z->peers[r];
        zmq_msg_t bye;
        void *dealer = r == z->rank || !p->attached || p->left ? NULL : gw_zmq_dealer_to(z, r);
        if (!dealer || zmq_msg_init_size(&bye, NUMBER_BYTES) != 0) continue;
        gw_le_put(zmq_msg_data(&bye), p->sent++, NUMBER_BYTES);
        gw_zmq_set(dealer, ZMQ_LINGER, LINGER_MS);
        gw_zmq_send_part(dealer, &bye, 0);
    }
}

static void zmq_transport_close(gw_transport *transport) {
    zmq *z = (zmq *)transport;
    if (z->router) take_leave(z);
    gw_zmq_drop_held(z);
    if (z->peers) close_dealers(z);
    if (z->router) zmq_close(z->router);
    if (z->context) zmq_ctx_term(z->context); /* returns when all is sent, or after the linger time */
    gw_fd_close(z->bell);
    gw_fd_close(z->epoll);
    OPENSSL_cleanse(z->key, sizeof z->key);
    OPENSSL_cleanse(z->server_secret, sizeof z->server_secret);
    OPENSSL_cleanse(z->client_secret, sizeof z->client_secret);
    free(z->peers);
    free(z);
}

static const gw_transport_ops ops = {
    .name = "zmq", .chunk_bytes = CHUNK_BYTES, .ordered = true, .hangs_up = true, .send = gw_zmq_send,
    .release = zmq_release, .poll = zmq_transport_poll, .wait_fd = zmq_wait_fd, .arm = zmq_arm, .reset = zmq_reset,
    .close = zmq_transport_close,
};

/* gw_listen_open opens the listening socket, as it does for all listeners; ZeroMQ then takes it over. */
static gw_status listen_at(zmq *z, const gw_zmq_options *options, gw_error *error) {
    int fd = -1;
    gw_address bound;
    char text[GW_ADDRESS_TEXT], url[GW_ADDRESS_TEXT + 8];
    gw_status status = gw_listen_open(&options->address, options->port_low, options->port_high, &fd, &bound, error);
    if (status != GW_OK) return status;
    snprintf(url, sizeof url, "tcp://%s", gw_address_text(&bound, text));
    z->port = gw_address_port(&bound);
    if (gw_zmq_set(z->router, ZMQ_USE_FD, fd) && zmq_bind(z->router, url) == 0) return GW_OK;
    gw_fail(error, GW_SYSTEM, "zmq: cannot listen at %s: %s", text, zmq_strerror(zmq_errno()));
    gw_fd_close(fd);
    return GW_SYSTEM;
}

static gw_status open_router(zmq *z, gw_error *error) {
    z->context = zmq_ctx_new();
    z->router = z->context ? zmq_socket(z->context, ZMQ_ROUTER) : NULL;
    int64_t largest = MESSAGE_BYTES_MAX;
    bool done = z->router && gw_zmq_set(z->router, ZMQ_RCVHWM, QUEUED_MAX) && gw_zmq_set(z->router, ZMQ_LINGER, 0) &&
                gw_zmq_set(z->router, ZMQ_IPV6, 1) &&
                zmq_setsockopt(z->router, ZMQ_MAXMSGSIZE, &largest, sizeof largest) == 0;
    if (done && !z->clear)
        done = gw_zmq_set(z->router, ZMQ_CURVE_SERVER, 1) &&
               zmq_setsockopt(z->router, ZMQ_CURVE_SECRETKEY, z->server_secret, GW_ZMQ_KEY_TEXT) == 0;
    if (done) return GW_OK;
    return gw_fail(error, GW_SYSTEM, "zmq: cannot make a socket: %s; see ulimit -n", zmq_strerror(zmq_errno()));
}

static gw_status open_descriptors(zmq *z, gw_error *error) {
    int fd = -1;
    size_t bytes = sizeof fd;
    struct epoll_event event = {.events = EPOLLIN};
    z->epoll = gw_fd_register(epoll_create1(EPOLL_CLOEXEC));
    z->bell = gw_fd_register(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (z->epoll >= 0 && z->bell >= 0 && zmq_getsockopt(z->router, ZMQ_FD, &fd, &bytes) == 0 &&
        epoll_ctl(z->epoll, EPOLL_CTL_ADD, z->bell, &event) == 0 && epoll_ctl(z->epoll, EPOLL_CTL_ADD, fd, &event) == 0)
        return GW_OK;
    return gw_fail(error, GW_SYSTEM, "zmq: no epoll or eventfd: %s; see ulimit -n", strerror(errno));
}

static gw_status available(gw_error *error) {
    if (zmq_has("curve")) return GW_OK;
    return gw_fail(error, GW_UNSUPPORTED,
                   "transport=zmq needs a libzmq with CURVE, and this one has none: install one that was built with "
                   "libsodium, or choose zmq:clear where nobody else reads the network");
}

/* ZeroMQ allocates every received message with malloc. By default glibc maps and unmaps memory for each message of this
 * size, and the page faults cost as much as the transfer (8 MiB over two ranks: 10.4 against 5.2 ms). Settings of the
 * user have precedence. */
static void keep_memory(void) {
    if (getenv("GLIBC_TUNABLES") || getenv("MALLOC_MMAP_THRESHOLD_")) return;
    mallopt(M_MMAP_THRESHOLD, 4 * CHUNK_BYTES);
    mallopt(M_TRIM_THRESHOLD, KEPT_BYTES);
}

gw_status gw_zmq_open(gw_transport **out, const gw_zmq_options *options, gw_sink sink, gw_error *error) {
    gw_status status = GW_OK;
    keep_memory();
    zmq *z = calloc(1, sizeof *z);
    if (!z) return gw_fail(error, GW_MEMORY, "zmq: no memory for the transport");
    *z = (zmq){.base = {&ops, sink}, .rank = options->rank, .world = options->world, .clear = options->clear,
               .epoll = -1, .bell = -1};
    z->last_held = &z->first_held;
    memcpy(z->key, options->key, sizeof z->key);
    z->peers = calloc((size_t)z->world, sizeof *z->peers);
    if (!z->peers) status = gw_fail(error, GW_MEMORY, "zmq: no memory for %d peers", z->world);
    for (int r = 0; z->peers && r < z->world; r++) z->peers[r] = (peer){.transport = z, .number = r, .id_of = -1};
    if (status == GW_OK && !z->clear) status = available(error);
    if (status == GW_OK && !z->clear &&
        !(gw_zmq_key_pair(z->key, "server", z->server_public, z->server_secret) &&
          gw_zmq_key_pair(z->key, "client", z->client_public, z->client_secret)))
        status = gw_fail(error, GW_SYSTEM, "zmq: libcrypto and libzmq make no keys: check their installation");
    if (status == GW_OK) status = open_router(z, error);
    if (status == GW_OK) status = open_descriptors(z, error);
    if (status == GW_OK) status = listen_at(z, options, error);
    if (status == GW_OK) *out = &z->base;
    else zmq_transport_close(&z->base);
    return status;
}

void gw_zmq_endpoint(const gw_transport *transport, uint8_t endpoint[GW_ZMQ_ENDPOINT_BYTES]) {
    const zmq *z = (const zmq *)transport;
    memcpy(endpoint, "zmq", 4);
    endpoint[4] = z->clear;
    endpoint[5] = 0;
    gw_le_put(endpoint + 6, (uint64_t)z->port, 2);
}

gw_status gw_zmq_attach(gw_transport *transport, int number, const gw_address *host,
                        const uint8_t endpoint[GW_ZMQ_ENDPOINT_BYTES], gw_error *error) {
    zmq *z = (zmq *)transport;
    peer *p = &z->peers[number];
    bool same = memcmp(endpoint, "zmq", 4) == 0 && (endpoint[4] != 0) == z->clear && gw_le_get16(endpoint + 6) != 0;
    if (!same)
        return gw_fail_rank(error, GW_MISMATCH, number,
                            "rank %d uses transport=zmq%s and rank %d does not: give all ranks the same strategy",
                            z->rank, z->clear ? ":clear" : "", number);
    p->address = *host;
    gw_address_set_port(&p->address, gw_le_get16(endpoint + 6));
    p->attached = true;
    return GW_OK;
}

/* ---- the table's entry ---- */

enum { CLEAR }; /* of the technique's parameters */

static gw_status listen_by_table(gw_transport **out, const gw_transport_options *o,
                                 uint8_t endpoint[GW_ENDPOINT_TRANSPORT_BYTES], gw_error *error) {
    gw_zmq_options options = {.rank = o->rank, .world = o->world, .address = *o->address,
                              .clear = o->values[CLEAR] != 0};
    gw_status status = o->derive_key(o->ctx, "zmq", options.key, error);
    if (!status && o->ports && o->ports[0])
        status = gw_ports_parse(o->ports, &options.port_low, &options.port_high, error);
    if (!status) status = gw_zmq_open(out, &options, o->sink, error);
    OPENSSL_cleanse(options.key, sizeof options.key);
    if (!status) gw_zmq_endpoint(*out, endpoint);
    return status;
}

const gw_transport_type gw_transport_zmq = {
    .technique = GW_ZMQ_TECHNIQUE,
    .tcp_sockets = true,
    .threads = 1,
    .available = available,
    .listen = listen_by_table,
    .attach = gw_zmq_attach,
};
