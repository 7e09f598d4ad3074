/* rdma_peer.c - hello and goodbye between ranks.
 *
 * The inner tcp transport has three frames: HELLO, with address and cookie, before anything goes over the fabric; BYE,
 * from a rank that leaves, with the number of its messages and writes; and HEARD, the answer when all these have
 * arrived. So a rank waits for messages that are still on the fabric when the connection ends, lost() is called after
 * all that the peer sent has arrived, and a rank can leave before the others do. */
#include "transport/rdma/rdma_internal.h"

#include <openssl/rand.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { HELLO = 0, BYE = 1, HEARD = 2 }; /* frame.index */

void gw_rdma_fail_peer(rdma *r, int rank, gw_status status, const char *format, ...) {
    peer *p = &r->peers[rank];
    if (p->status != GW_OK || p->lost) return;
    p->status = status;
    va_list args;
    va_start(args, format);
    vsnprintf(p->detail, sizeof p->detail, format, args);
    va_end(args);
    r->unsettled = true;
}

static void answer_bye(rdma *r, int rank) {
    peer *p = &r->peers[rank];
    if (!p->parting || p->answered || p->closed || p->received < p->last) return;
    p->answered = true;
    p->answer = (gw_packet){.frame = {.kind = GW_FRAME_DATA, .index = HEARD, .root = -1}};
    r->tcp->ops->send(r->tcp, rank, &p->answer);
    r->tcp_due = true;
}

bool gw_rdma_settle(rdma *r) {
    if (!r->unsettled) return false;
    bool said = false;
    r->unsettled = false;
    for (int i = 0; i < r->world; i++) {
        peer *p = &r->peers[i];
        answer_bye(r, i);
        if (p->closed && p->status == GW_OK && p->received >= p->last)
            gw_rdma_fail_peer(r, i, GW_PEER_LOST, "connection closed by the peer");
        if (p->status == GW_OK || p->lost) continue;
        p->lost = true;
        said = true;
        if (!r->closing) r->base.sink.lost(r->base.sink.ctx, i, p->status, p->detail);
    }
    return said;
}

gw_status gw_rdma_draw_cookies(rdma *r, gw_error *error) {
    uint64_t seed;
    for (int i = 0; i < r->world; i++)
        if (RAND_bytes(r->peers[i].expects, GW_RDMA_COOKIE_BYTES) != 1)
            return gw_fail(error, GW_SYSTEM, "rdma: libcrypto has no random bytes: check its installation");
    memcpy(&seed, r->peers[r->rank].expects, sizeof seed);
    r->rng = gw_rng_make(seed, 0);
    return GW_OK;
}

void gw_rdma_greet(rdma *r, int rank) {
    peer *p = &r->peers[rank];
    if (p->greeted) return;
    gw_rdma_reopen(r);
    if (!r->fabric.endpoint) return;
    p->greeted = true;
    gw_rdma_hello hello = {.address_bytes = r->fabric.address_bytes};
    if (r->stamp_memory) {
        hello.stamps_address = r->stamp_memory->address;
        hello.stamps_key = r->stamp_memory->key;
    }
    memcpy(hello.cookie, p->expects, sizeof hello.cookie);
    memcpy(hello.provider, r->fabric.name, sizeof hello.provider);
    memcpy(hello.address, r->fabric.address, hello.address_bytes);
    gw_rdma_hello_write(&hello, p->hello_out);
    p->hello = (gw_packet){.frame = {.kind = GW_FRAME_DATA, .index = HELLO, .length = GW_RDMA_HELLO_BYTES, .root = -1},
                           .data = p->hello_out};
    r->tcp->ops->send(r->tcp, rank, &p->hello);
    r->tcp_due = true;
}

static void get_to_know(rdma *r, int rank) {
    peer *p = &r->peers[rank];
    gw_rdma_hello hello;
    gw_error error = {.rank = -1};
    gw_rdma_greet(r, rank); /* first, so that the peer finds the same mistake */
    if (!p->greeted) return;
    if (gw_rdma_hello_read(&hello, p->hello_in, &error) != GW_OK) {
        gw_rdma_fail_peer(r, rank, GW_PROTOCOL, "%s", error.text);
    } else if (strcmp(hello.provider, r->fabric.name) != 0) {
        gw_rdma_fail_peer(r, rank, GW_MISMATCH,
                          "it uses libfabric's provider %s, and this rank %s: choose one with "
                          "transport=rdma:provider=NAME",
                          hello.provider, r->fabric.name);
    } else if (fi_av_insert(r->fabric.peers, hello.address, 1, &p->address, 0, NULL) != 1) {
        gw_rdma_fail_peer(r, rank, GW_SYSTEM, "libfabric does not take its address");
    } else {
        memcpy(p->cookie, hello.cookie, sizeof p->cookie);
        p->stamps_address = hello.stamps_address;
        p->stamps_key = hello.stamps_key;
        memcpy(p->fabric_address, hello.address, hello.address_bytes);
        p->fabric_address_bytes = hello.address_bytes;
        p->known = true;
        gw_rdma_list(r, rank);
    }
}

/* ---- the sink of the inner tcp transport ---- */

static void *tcp_recv_buffer(void *ctx, int rank, const gw_frame *frame) {
    rdma *r = ctx;
    peer *p = &r->peers[rank];
    return frame->index == HELLO && frame->length == GW_RDMA_HELLO_BYTES && !p->known ? p->hello_in : NULL;
}

static void tcp_arrived(void *ctx, int rank, const gw_frame *frame, const void *data, uint64_t ticket) {
    (void)data, (void)ticket;
    rdma *r = ctx;
    peer *p = &r->peers[rank];
    if (frame->index == HELLO) {
        if (frame->length && !p->known) get_to_know(r, rank);
        else gw_rdma_fail_peer(r, rank, GW_PROTOCOL, "it introduced itself without an address, or twice");
        return;
    }
    p->confirmed |= frame->index == HEARD;
    if (frame->index != BYE) return;
    p->parting = true;
    p->last = frame->count;
    r->unsettled = true;
}

static void tcp_sent(void *ctx, int rank, gw_packet *packet) { (void)ctx, (void)rank, (void)packet; }

static void tcp_lost(void *ctx, int rank, gw_status status, const char *detail) {
    rdma *r = ctx;
    peer *p = &r->peers[rank];
    p->closed = true;
    r->unsettled = true;
    if (!p->parting) gw_rdma_fail_peer(r, rank, status, "%s", detail);
}

gw_sink gw_rdma_tcp_sink(rdma *r) {
    return (gw_sink){
        .ctx = r, .recv_buffer = tcp_recv_buffer, .arrived = tcp_arrived, .sent = tcp_sent, .lost = tcp_lost};
}

void gw_rdma_say_bye(rdma *r, int rank) {
    peer *p = &r->peers[rank];
    p->bye = (gw_packet){.frame = {.kind = GW_FRAME_DATA, .index = BYE, .count = p->sent, .root = -1}};
    r->tcp->ops->send(r->tcp, rank, &p->bye);
}
