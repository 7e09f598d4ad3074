/* zmq_send.c - outgoing frames, and the DEALERs that send them. A small payload is copied after the head; a large one
 * is lent to ZeroMQ without a copy. */
#include "transport/library_sockets.h"
#include "transport/zmq/zmq_internal.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define SMALL_BYTES ((uint64_t)8 << 10) /* payloads up to this are copied into the head */

void gw_zmq_break_off(zmq *z, int number, gw_status status, const char *detail) {
    peer *p = &z->peers[number];
    if (p->broken || p->lost) return;
    p->broken = status;
    snprintf(p->detail, sizeof p->detail, "%.*s", (int)sizeof p->detail - 1, detail);
    z->unsettled = true;
}

bool gw_zmq_set(void *socket, int option, int value) {
    return zmq_setsockopt(socket, option, &value, sizeof value) == 0;
}

static bool arm_dealer(const zmq *z, void *dealer, int number) {
    uint8_t id[GW_ZMQ_ID_BYTES];
    if (!gw_zmq_id(z->key, z->rank, number, z->generation, id)) return false;
    bool done = gw_zmq_set(dealer, ZMQ_SNDHWM, 0) && gw_zmq_set(dealer, ZMQ_LINGER, 0) &&
                gw_zmq_set(dealer, ZMQ_IPV6, 1) && zmq_setsockopt(dealer, ZMQ_ROUTING_ID, id, sizeof id) == 0;
    if (z->clear) return done;
    return done && zmq_setsockopt(dealer, ZMQ_CURVE_SERVERKEY, z->server_public, GW_ZMQ_KEY_TEXT) == 0 &&
           zmq_setsockopt(dealer, ZMQ_CURVE_PUBLICKEY, z->client_public, GW_ZMQ_KEY_TEXT) == 0 &&
           zmq_setsockopt(dealer, ZMQ_CURVE_SECRETKEY, z->client_secret, GW_ZMQ_KEY_TEXT) == 0;
}

void *gw_zmq_dealer_to(zmq *z, int number) {
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
    gw_zmq_break_off(z, number, GW_SYSTEM, zmq_strerror(zmq_errno()));
    if (dealer) zmq_close(dealer);
    return NULL;
}

/* Called by the I/O thread when it no longer needs the payload. hint is the packet, whose `progress` holds the pointer
 * to the peer. */
static void let_go(void *data, void *hint) {
    (void)data;
    gw_packet *packet = hint;
    zmq *z = ((peer *)(uintptr_t)__atomic_load_n(&packet->progress, __ATOMIC_ACQUIRE))->transport;
    gw_packet *first = atomic_load_explicit(&z->done, memory_order_relaxed);
    do packet->next = first;
    while (!atomic_compare_exchange_weak(&z->done, &first, packet));
    if (atomic_load(&z->asleep)) {
        uint64_t one = 1;
        ssize_t rung = write(z->bell, &one, sizeof one);
        (void)rung; /* fails only when the eventfd is full, and so readable */
    }
    atomic_fetch_sub(&z->lent, 1); /* last: reset() waits for it */
}

bool gw_zmq_send_part(void *socket, zmq_msg_t *part, int flags) {
    if (zmq_msg_send(part, socket, flags | ZMQ_DONTWAIT) >= 0) return true;
    zmq_msg_close(part);
    return false;
}

/* Sends the head of a packet, and this many bytes of its payload. */
static bool send_head(void *dealer, uint64_t number, const gw_packet *packet, uint64_t bytes, bool more) {
    zmq_msg_t head;
    if (zmq_msg_init_size(&head, HEAD_BYTES + bytes) != 0) return false;
    uint8_t *at = zmq_msg_data(&head);
    gw_le_put(at, number, NUMBER_BYTES);
    gw_frame_write(&packet->frame, at + NUMBER_BYTES);
    if (bytes) memcpy(at + HEAD_BYTES, packet->data, bytes);
    return gw_zmq_send_part(dealer, &head, more ? ZMQ_SNDMORE : 0);
}

static bool lend_body(peer *p, gw_packet *packet) {
    zmq_msg_t body;
    __atomic_store_n(&packet->progress, (uintptr_t)p, __ATOMIC_RELEASE); /* the I/O thread's until let_go() */
    void *data = (void *)(uintptr_t)packet->data;
    if (zmq_msg_init_data(&body, data, packet->frame.length, let_go, packet) != 0) return false;
    atomic_fetch_add(&p->transport->lent, 1);
    return gw_zmq_send_part(p->dealer, &body, 0); /* a failed part is released by let_go() too */
}

void gw_zmq_send(gw_transport *transport, int number, gw_packet *packet) {
    zmq *z = (zmq *)transport;
    peer *p = &z->peers[number];
    assert(number >= 0 && number < z->world && number != z->rank);
    packet->next = NULL;
    void *dealer = p->lost || p->broken ? NULL : gw_zmq_dealer_to(z, number);
    if (!dealer) return;
    bool small = packet->frame.length <= SMALL_BYTES;
    if (!send_head(dealer, p->sent++, packet, small ? packet->frame.length : 0, !small) ||
        (!small && !lend_body(p, packet)))
        gw_zmq_break_off(z, number, GW_SYSTEM, zmq_strerror(zmq_errno()));
    else if (small) z->base.sink.sent(z->base.sink.ctx, number, packet);
}

bool gw_zmq_give_back(zmq *z) {
    if (!atomic_load_explicit(&z->done, memory_order_relaxed)) return false;
    gw_packet *packet = atomic_exchange(&z->done, NULL);
    while (packet) {
        gw_packet *next = packet->next;
        peer *p = (peer *)(uintptr_t)packet->progress;
        if (!p->tuned) gw_library_sockets_leave_bbr(&p->address, false); /* something went out, so it is connected */
        p->tuned = true;
        z->base.sink.sent(z->base.sink.ctx, p->number, packet);
        packet = next;
    }
    return true;
}
