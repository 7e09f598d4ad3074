/* zmq.c - see zmq.h. A message has the sender's routing id (put in front by the ROUTER), a head (number, frame, and a
 * small payload) and, where it is large, the payload as a part of its own, lent to ZeroMQ where it lies. A head of
 * nothing but the number is the last message of a peer that leaves.
 *
 * Payloads are shown to the engine inside the message that brought them, so a sum is formed without another copy. */
#include "transport/zmq.h"

#include "base/log.h"
#include "transport/listen.h"
#include "transport/wire.h"
#include "transport/zmq_keys.h"

#include <assert.h>
#include <errno.h>
#include <openssl/crypto.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include <zmq.h>

#define SMALL_BYTES ((uint64_t)8 << 10) /* payloads up to this are copied into the head */
#define TURN_BYTES ((uint64_t)1 << 20)  /* taken by one poll() at most */
#define LINGER_MS 1000                  /* how long close() waits for what was sent last */
#define LET_GO_US 1000000               /* how long reset() waits for the I/O thread; microseconds */
#define ALIGNMENT 8                     /* of a payload that the engine may look at where it is */
#define NUMBER_BYTES 8
#define HEAD_BYTES (NUMBER_BYTES + GW_FRAME_BYTES)
#define DETAIL_BYTES 128

typedef struct peer {
    struct zmq *transport;
    int number;
    void *dealer;             /* NULL: nothing was sent yet in this generation */
    uint64_t sent, received;  /* messages of this generation */
    gw_address address;
    uint8_t id[GW_ZMQ_ID_BYTES];     /* of its messages to this rank in generation id_of */
    int64_t id_of;            /* -1: none yet */
    bool attached, lost;
    bool left;                /* it said so */
    gw_status broken;         /* to be told by poll() */
    char detail[DETAIL_BYTES];
} peer;

/* A message of a generation to come. */
typedef struct held {
    struct held *next;
    int from;
    uint32_t generation;
    zmq_msg_t head, body;
} held;

typedef struct zmq {
    gw_transport base;
    int rank, world;
    bool clear;
    uint8_t key[GW_ZMQ_KEY_BYTES];
    uint32_t generation;
    int port;
    void *context, *router;
    int epoll, bell;                   /* the ROUTER's descriptor and the bell, an eventfd */
    _Atomic bool asleep;               /* the bell is wanted */
    _Atomic(gw_packet *) done;         /* lent packets that the I/O thread has let go of, latest first */
    _Atomic int lent;                  /* packets that it still holds */
    held *first_held, **last_held;
    bool closing;                      /* only goodbyes are heard */
    bool unsettled;                    /* some peer is broken and poll() has not said so */
    peer *peers;
    char server_public[GW_ZMQ_KEY_TEXT], server_secret[GW_ZMQ_KEY_TEXT];
    char client_public[GW_ZMQ_KEY_TEXT], client_secret[GW_ZMQ_KEY_TEXT];
} zmq;

/* Who sent a message, and in which generation. False: nobody of this job. */
static bool know(zmq *z, zmq_msg_t *id, int *from, uint32_t *generation) {
    const uint8_t *bytes = zmq_msg_data(id);
    if (zmq_msg_size(id) != GW_ZMQ_ID_BYTES || !gw_zmq_id_read(bytes, z->world, from, generation)) return false;
    peer *p = &z->peers[*from];
    if (*from == z->rank) return false;
    if (p->id_of != (int64_t)*generation) {
        if (!gw_zmq_id(z->key, *from, z->rank, *generation, p->id)) return false;
        p->id_of = *generation;
    }
    return CRYPTO_memcmp(p->id, bytes, GW_ZMQ_ID_BYTES) == 0;
}

/* ---- sending ---- */

static void break_off(zmq *z, int number, gw_status status, const char *detail) {
    peer *p = &z->peers[number];
    if (p->broken || p->lost) return;
    p->broken = status;
    snprintf(p->detail, sizeof p->detail, "%.*s", (int)sizeof p->detail - 1, detail);
    z->unsettled = true;
}

static bool set(void *socket, int option, int value) {
    return zmq_setsockopt(socket, option, &value, sizeof value) == 0;
}

static bool arm_dealer(const zmq *z, void *dealer, int number) {
    uint8_t id[GW_ZMQ_ID_BYTES];
    if (!gw_zmq_id(z->key, z->rank, number, z->generation, id)) return false;
    bool done = set(dealer, ZMQ_SNDHWM, 0) && set(dealer, ZMQ_LINGER, 0) && set(dealer, ZMQ_IPV6, 1) &&
                zmq_setsockopt(dealer, ZMQ_ROUTING_ID, id, sizeof id) == 0;
    if (z->clear) return done;
    return done && zmq_setsockopt(dealer, ZMQ_CURVE_SERVERKEY, z->server_public, GW_ZMQ_KEY_TEXT) == 0 &&
           zmq_setsockopt(dealer, ZMQ_CURVE_PUBLICKEY, z->client_public, GW_ZMQ_KEY_TEXT) == 0 &&
           zmq_setsockopt(dealer, ZMQ_CURVE_SECRETKEY, z->client_secret, GW_ZMQ_KEY_TEXT) == 0;
}

/* The socket to a peer, made when first used; NULL: there is none, and the peer is broken. */
static void *dealer_to(zmq *z, int number) {
    peer *p = &z->peers[number];
    char address[GW_ADDRESS_TEXT], url[GW_ADDRESS_TEXT + 8];
    if (p->dealer) return p->dealer;
    assert(p->attached);
    void *dealer = zmq_socket(z->context, ZMQ_DEALER);
    snprintf(url, sizeof url, "tcp://%s", gw_address_text(&p->address, address));
    if (dealer && arm_dealer(z, dealer, number) && zmq_connect(dealer, url) == 0) {
        p->dealer = dealer;
        return dealer;
    }
    break_off(z, number, GW_SYSTEM, zmq_strerror(zmq_errno()));
    if (dealer) zmq_close(dealer);
    return NULL;
}

/* From the I/O thread, when the payload's bytes are no longer needed. hint is the packet. */
static void let_go(void *data, void *hint) {
    (void)data;
    gw_packet *packet = hint;
    zmq *z = ((peer *)(uintptr_t)packet->progress)->transport;
    gw_packet *first = atomic_load_explicit(&z->done, memory_order_relaxed);
    do packet->next = first;
    while (!atomic_compare_exchange_weak(&z->done, &first, packet));
    if (atomic_load(&z->asleep)) {
        uint64_t one = 1;
        ssize_t rung = write(z->bell, &one, sizeof one);
        (void)rung; /* fails only when it rings already */
    }
    atomic_fetch_sub(&z->lent, 1); /* the last that is touched: reset() waits for it */
}

static bool send_part(void *socket, zmq_msg_t *part, int flags) {
    if (zmq_msg_send(part, socket, flags | ZMQ_DONTWAIT) >= 0) return true;
    zmq_msg_close(part);
    return false;
}

/* The head of a packet, and of its payload as many bytes as ride along. */
static bool send_head(void *dealer, uint64_t number, const gw_packet *packet, uint64_t bytes, bool more) {
    zmq_msg_t head;
    if (zmq_msg_init_size(&head, HEAD_BYTES + bytes) != 0) return false;
    uint8_t *at = zmq_msg_data(&head);
    gw_put(at, number, NUMBER_BYTES);
    gw_frame_write(&packet->frame, at + NUMBER_BYTES);
    if (bytes) memcpy(at + HEAD_BYTES, packet->data, bytes);
    return send_part(dealer, &head, more ? ZMQ_SNDMORE : 0);
}

static bool lend_body(peer *p, gw_packet *packet) {
    zmq_msg_t body;
    packet->progress = (uintptr_t)p;
    void *data = (void *)(uintptr_t)packet->data;
    if (zmq_msg_init_data(&body, data, packet->frame.length, let_go, packet) != 0) return false;
    atomic_fetch_add(&p->transport->lent, 1);
    return send_part(p->dealer, &body, 0); /* a part that is refused is let go of, too */
}

static void zmq_transport_send(gw_transport *transport, int number, gw_packet *packet) {
    zmq *z = (zmq *)transport;
    peer *p = &z->peers[number];
    assert(number >= 0 && number < z->world && number != z->rank);
    packet->next = NULL;
    void *dealer = p->lost || p->broken ? NULL : dealer_to(z, number);
    if (!dealer) return;
    bool small = packet->frame.length <= SMALL_BYTES;
    if (!send_head(dealer, p->sent++, packet, small ? packet->frame.length : 0, !small) ||
        (!small && !lend_body(p, packet)))
        break_off(z, number, GW_SYSTEM, zmq_strerror(zmq_errno()));
    else if (small) z->base.sink.sent(z->base.sink.ctx, number, packet);
}

static bool give_back(zmq *z) {
    if (!atomic_load_explicit(&z->done, memory_order_relaxed)) return false;
    gw_packet *packet = atomic_exchange(&z->done, NULL);
    while (packet) {
        gw_packet *next = packet->next;
        z->base.sink.sent(z->base.sink.ctx, ((peer *)(uintptr_t)packet->progress)->number, packet);
        packet = next;
    }
    return true;
}

/* ---- receiving ---- */

/* Where the payload is to be looked at: inside its message, or, where it does not lie straight, at its landing. */
static const void *show(zmq *z, int from, const gw_frame *frame, const uint8_t *data) {
    if ((uintptr_t)data % ALIGNMENT == 0) return data;
    void *landing = z->base.sink.landing(z->base.sink.ctx, from, frame);
    if (landing) memcpy(landing, data, frame->length);
    return landing;
}

/* A frame and its payload; body may be empty. */
static void deliver(zmq *z, int from, const uint8_t *head, size_t bytes, zmq_msg_t *body) {
    gw_frame frame;
    gw_error error = {0};
    const uint8_t *data = zmq_msg_size(body) ? zmq_msg_data(body) : head + HEAD_BYTES;
    uint64_t came = zmq_msg_size(body) ? zmq_msg_size(body) : bytes - HEAD_BYTES;
    if (gw_frame_read(&frame, head + NUMBER_BYTES, &error) != GW_OK) {
        break_off(z, from, GW_PROTOCOL, error.text);
        return;
    }
    if (frame.length != came || (came && frame.kind != GW_FRAME_DATA)) {
        break_off(z, from, GW_PROTOCOL, "a frame brought more or fewer bytes than it announced");
        return;
    }
    const void *shown = came ? show(z, from, &frame, data) : NULL;
    if (came && !shown) break_off(z, from, GW_PROTOCOL, "a frame brought bytes that have no place here");
    else z->base.sink.arrived(z->base.sink.ctx, from, &frame, shown, 0);
}

static void take(zmq *z, int from, zmq_msg_t *head, zmq_msg_t *body) {
    peer *p = &z->peers[from];
    const uint8_t *bytes = zmq_msg_data(head);
    size_t size = zmq_msg_size(head);
    if (size == NUMBER_BYTES) p->left = true;
    if (p->lost || p->broken || z->closing) return;
    if (size != NUMBER_BYTES && size < HEAD_BYTES) {
        break_off(z, from, GW_PROTOCOL, "a message was too short for its head");
    } else if (gw_get64(bytes) != p->received) {
        break_off(z, from, GW_PEER_LOST, "the connection broke and messages were lost with it");
    } else if (size == NUMBER_BYTES) {
        break_off(z, from, GW_PEER_LOST, "it left the job (gw_finalize)");
    } else {
        p->received++;
        deliver(z, from, bytes, size, body);
    }
}

/* A peer that has been reset before us: its first messages wait until we are. */
static void hold(zmq *z, int from, uint32_t generation, zmq_msg_t *head, zmq_msg_t *body) {
    held *message = malloc(sizeof *message);
    if (!message) {
        break_off(z, from, GW_MEMORY, "out of memory for a message of the next generation");
        return;
    }
    *message = (held){.from = from, .generation = generation};
    zmq_msg_init(&message->head);
    zmq_msg_init(&message->body);
    zmq_msg_move(&message->head, head);
    zmq_msg_move(&message->body, body);
    *z->last_held = message;
    z->last_held = &message->next;
}

static bool receive_part(zmq *z, zmq_msg_t *part) {
    zmq_msg_init(part);
    return zmq_msg_recv(part, z->router, ZMQ_DONTWAIT) >= 0;
}

/* One message with all its parts; false: there is none. *bytes: of its payload. */
static bool receive(zmq *z, uint64_t *bytes) {
    zmq_msg_t id, head, body, extra;
    int from = -1;
    uint32_t generation = 0;
    if (!receive_part(z, &id)) return false;
    zmq_msg_init(&head);
    zmq_msg_init(&body);
    if (zmq_msg_more(&id)) receive_part(z, &head);
    if (zmq_msg_more(&head)) receive_part(z, &body);
    bool surplus = zmq_msg_more(&body);
    for (bool more = surplus; more; zmq_msg_close(&extra)) {
        receive_part(z, &extra);
        more = zmq_msg_more(&extra);
    }
    *bytes = zmq_msg_size(&head) + zmq_msg_size(&body);
    if (!surplus && know(z, &id, &from, &generation)) {
        if (generation == z->generation) take(z, from, &head, &body);
        else if (generation > z->generation) hold(z, from, generation, &head, &body);
    }
    zmq_msg_close(&id);
    zmq_msg_close(&head);
    zmq_msg_close(&body);
    return true;
}

/* What was held and is of this generation now; later ones stay. */
static bool release_held(zmq *z) {
    if (!z->first_held || z->first_held->generation > z->generation) return false;
    held *list = z->first_held;
    z->first_held = NULL;
    z->last_held = &z->first_held;
    while (list) {
        held *next = list->next;
        if (list->generation == z->generation) take(z, list->from, &list->head, &list->body);
        else if (list->generation > z->generation) hold(z, list->from, list->generation, &list->head, &list->body);
        zmq_msg_close(&list->head);
        zmq_msg_close(&list->body);
        free(list);
        list = next;
    }
    return true;
}

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
    bool moved = give_back(z);
    moved |= release_held(z);
    uint64_t sum = 0, bytes = 0;
    while (sum < TURN_BYTES && receive(z, &bytes)) {
        sum += bytes;
        moved = true;
    }
    return settle(z) || moved;
}

static int zmq_wait_fd(gw_transport *transport) { return ((zmq *)transport)->epoll; }

/* The ROUTER's descriptor tells only of what came since its events were asked for. */
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

static void drop_held(zmq *z) {
    while (z->first_held) {
        held *next = z->first_held->next;
        zmq_msg_close(&z->first_held->head);
        zmq_msg_close(&z->first_held->body);
        free(z->first_held);
        z->first_held = next;
    }
}

static void zmq_reset(gw_transport *transport, uint32_t generation) {
    zmq *z = (zmq *)transport;
    close_dealers(z); /* their linger is zero: the I/O thread throws away what they hold */
    for (int us = 0; atomic_load(&z->lent) > 0 && us < LET_GO_US; us += 50) usleep(50);
    if (atomic_load(&z->lent) > 0)
        gw_log(GW_LOG_ERROR, z->rank, "ZeroMQ still holds %d messages that are over", atomic_load(&z->lent));
    atomic_store(&z->done, NULL);
    for (int r = 0; r < z->world; r++) {
        peer *p = &z->peers[r];
        p->sent = p->received = 0;
        p->lost = p->left = false;
        p->broken = GW_OK;
    }
    z->unsettled = false;
    z->generation = generation;
}

/* Says goodbye to everyone who has not done so, whether there was anything to send before or not: the other side cannot
 * know. */
static void take_leave(zmq *z) {
    uint64_t bytes;
    z->closing = true;
    for (int i = 0; i < 1024 && receive(z, &bytes); i++) {}
    for (int r = 0; r < z->world; r++) {
        peer *p = &z->peers[r];
        zmq_msg_t bye;
        void *dealer = r == z->rank || !p->attached || p->left ? NULL : dealer_to(z, r);
        if (!dealer || zmq_msg_init_size(&bye, NUMBER_BYTES) != 0) continue;
        gw_put(zmq_msg_data(&bye), p->sent++, NUMBER_BYTES);
        set(dealer, ZMQ_LINGER, LINGER_MS);
        send_part(dealer, &bye, 0);
    }
}

static void zmq_transport_close(gw_transport *transport) {
    zmq *z = (zmq *)transport;
    if (z->router) take_leave(z);
    drop_held(z);
    if (z->peers) close_dealers(z);
    if (z->router) zmq_close(z->router);
    if (z->context) zmq_ctx_term(z->context); /* returns when all is sent, or nobody takes it */
    if (z->bell >= 0) close(z->bell);
    if (z->epoll >= 0) close(z->epoll);
    OPENSSL_cleanse(z->key, sizeof z->key);
    OPENSSL_cleanse(z->server_secret, sizeof z->server_secret);
    OPENSSL_cleanse(z->client_secret, sizeof z->client_secret);
    free(z->peers);
    free(z);
}

static const gw_transport_ops ops = {
    .name = "zmq", .ordered = true, .hangs_up = true, .send = zmq_transport_send, .release = zmq_release,
    .poll = zmq_transport_poll, .wait_fd = zmq_wait_fd, .arm = zmq_arm, .reset = zmq_reset,
    .close = zmq_transport_close,
};

/* The listening socket is ours, opened as all others are; ZeroMQ takes it over. */
static gw_status listen_at(zmq *z, const gw_zmq_options *options, gw_error *error) {
    int fd = -1;
    gw_address bound;
    char text[GW_ADDRESS_TEXT], url[GW_ADDRESS_TEXT + 8];
    gw_status status = gw_listen_open(&options->address, options->port_low, options->port_high, &fd, &bound, error);
    if (status != GW_OK) return status;
    snprintf(url, sizeof url, "tcp://%s", gw_address_text(&bound, text));
    z->port = gw_address_port(&bound);
    if (set(z->router, ZMQ_USE_FD, fd) && zmq_bind(z->router, url) == 0) return GW_OK;
    gw_fail(error, GW_SYSTEM, "zmq: cannot listen at %s: %s", text, zmq_strerror(zmq_errno()));
    close(fd);
    return GW_SYSTEM;
}

static gw_status open_router(zmq *z, gw_error *error) {
    z->context = zmq_ctx_new();
    z->router = z->context ? zmq_socket(z->context, ZMQ_ROUTER) : NULL;
    bool done = z->router && set(z->router, ZMQ_RCVHWM, 0) && set(z->router, ZMQ_LINGER, 0) &&
                set(z->router, ZMQ_IPV6, 1);
    if (done && !z->clear)
        done = set(z->router, ZMQ_CURVE_SERVER, 1) &&
               zmq_setsockopt(z->router, ZMQ_CURVE_SECRETKEY, z->server_secret, GW_ZMQ_KEY_TEXT) == 0;
    if (done) return GW_OK;
    return gw_fail(error, GW_SYSTEM, "zmq: cannot make a socket: %s", zmq_strerror(zmq_errno()));
}

static gw_status open_descriptors(zmq *z, gw_error *error) {
    int fd = -1;
    size_t bytes = sizeof fd;
    struct epoll_event event = {.events = EPOLLIN};
    z->epoll = epoll_create1(EPOLL_CLOEXEC);
    z->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (z->epoll >= 0 && z->bell >= 0 && zmq_getsockopt(z->router, ZMQ_FD, &fd, &bytes) == 0 &&
        epoll_ctl(z->epoll, EPOLL_CTL_ADD, z->bell, &event) == 0 && epoll_ctl(z->epoll, EPOLL_CTL_ADD, fd, &event) == 0)
        return GW_OK;
    return gw_fail(error, GW_SYSTEM, "zmq: no epoll or eventfd: %s; see ulimit -n", strerror(errno));
}

gw_status gw_zmq_open(gw_transport **out, const gw_zmq_options *options, gw_sink sink, gw_error *error) {
    gw_status status = GW_OK;
    zmq *z = calloc(1, sizeof *z);
    if (!z) return gw_fail(error, GW_MEMORY, "zmq: no memory for the transport");
    *z = (zmq){.base = {&ops, sink}, .rank = options->rank, .world = options->world, .clear = options->clear,
               .epoll = -1, .bell = -1, .last_held = NULL};
    z->last_held = &z->first_held;
    memcpy(z->key, options->key, sizeof z->key);
    z->peers = calloc((size_t)z->world, sizeof *z->peers);
    if (!z->peers) status = gw_fail(error, GW_MEMORY, "zmq: no memory for %d peers", z->world);
    for (int r = 0; z->peers && r < z->world; r++) z->peers[r] = (peer){.transport = z, .number = r, .id_of = -1};
    if (status == GW_OK && !z->clear &&
        !(gw_zmq_key_pair(z->key, "server", z->server_public, z->server_secret) &&
          gw_zmq_key_pair(z->key, "client", z->client_public, z->client_secret)))
        status = gw_fail(error, GW_UNSUPPORTED,
                         "transport=zmq needs a libzmq with CURVE, and this one has none: install one that was built "
                         "with libsodium, or choose zmq:clear where nobody else reads the network");
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
    gw_put(endpoint + 6, (uint64_t)z->port, 2);
}

gw_status gw_zmq_attach(gw_transport *transport, int number, const gw_address *host,
                        const uint8_t endpoint[GW_ZMQ_ENDPOINT_BYTES], gw_error *error) {
    zmq *z = (zmq *)transport;
    peer *p = &z->peers[number];
    bool same = memcmp(endpoint, "zmq", 4) == 0 && (endpoint[4] != 0) == z->clear && gw_get16(endpoint + 6) != 0;
    if (!same)
        return gw_fail_rank(error, GW_MISMATCH, number,
                            "rank %d uses transport=zmq%s and rank %d does not: give all ranks the same strategy",
                            z->rank, z->clear ? ":clear" : "", number);
    p->address = *host;
    gw_address_set_port(&p->address, gw_get16(endpoint + 6));
    p->attached = true;
    return GW_OK;
}
