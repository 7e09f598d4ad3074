/* rdma_receive.c - receive buffers for writes, and incoming messages and writes. */
#include "transport/rdma/rdma_internal.h"

#include "base/crc32c.h"

#include <openssl/crypto.h>
#include <stdlib.h>
#include <string.h>

/* ---- receive buffers ---- */

static bool same_message(const gw_frame *a, const gw_frame *b) {
    return a->index == b->index && a->op == b->op && a->channel == b->channel && a->comm == b->comm;
}

static slot *find_slot(peer *p, const gw_frame *frame) {
    for (uint32_t i = 0; p->slots_used && i < p->slot_room; i++)
        if (p->slots[i].used && same_message(&p->slots[i].frame, frame)) return &p->slots[i];
    return NULL;
}

static void free_slot(rdma *r, peer *p, slot *s) {
    gw_rdma_memory_give(&r->cache, s->memory);
    p->clears_due -= s->clear_due;
    p->slots_used--;
    s->used = s->clear_due = false;
}

/* The free slot with the lowest number, so that the peer's outdated advert of that number is soon overwritten. */
static slot *spare_slot(rdma *r, peer *p) {
    for (uint32_t i = 0; i < p->slot_room; i++)
        if (!p->slots[i].used) return &p->slots[i];
    uint32_t room = p->slot_room ? 2 * p->slot_room : 16, had = p->slot_room;
    if (room > r->slots_max) room = r->slots_max;
    slot *grown = room > had ? realloc(p->slots, room * sizeof *grown) : NULL;
    if (!grown) return NULL;
    memset(grown + had, 0, (room - had) * sizeof *grown);
    p->slots = grown;
    p->slot_room = room;
    return &grown[had];
}

slot *gw_rdma_slot_take(rdma *r, int rank, const gw_frame *frame, void *at, uint64_t bytes, gw_error *error) {
    peer *p = &r->peers[rank];
    slot *s = find_slot(p, frame);
    if (s && s->at == at) return s; /* granted while its sender offered it */
    if (s) free_slot(r, p, s);
    s = spare_slot(r, p);
    gw_rdma_memory *memory = s ? gw_rdma_memory_take(&r->cache, at, bytes, FI_REMOTE_WRITE, error) : NULL;
    if (!memory) {
        gw_fail(error, GW_MEMORY, "no room for more than %u receive buffers", (unsigned)p->slot_room);
        return NULL;
    }
    *s = (slot){.used = true, .frame = *frame, .at = at, .memory = memory};
    s->recv_buffer = (gw_rdma_recv_buffer){.slot = (uint32_t)(s - p->slots), .nonce = gw_rng_u32(&r->rng) | 1,
                                   .index = frame->index, .address = memory->address, .key = memory->key,
                                   .bytes = bytes};
    p->slots_used++;
    gw_rdma_stamp_await(r, rank, s->recv_buffer.slot);
    return s;
}

/* The payload of this frame is in the slot's buffer. */
static void landed(rdma *r, int rank, slot *s, const gw_frame *frame) {
    gw_frame whole = *frame; /* arrived() may reuse the slot */
    void *at = s->at;
    free_slot(r, &r->peers[rank], s);
    if (!r->closing) r->base.sink.arrived(r->base.sink.ctx, rank, &whole, at, 0);
}

/* ---- messages ---- */

/* The engine reduces or copies small payloads from the posted buffer. */
static void take_frame(rdma *r, const gw_rdma_message *m, const uint8_t *payload) {
    peer *p = &r->peers[m->from];
    for (int i = 0; i < m->recv_buffer_count; i++) gw_rdma_learn(r, m->from, &m->frame, &m->recv_buffers[i]);
    slot *granted = m->frame.kind == GW_FRAME_DATA ? find_slot(p, &m->frame) : NULL;
    if (granted) free_slot(r, p, granted); /* it came as a message instead */
    if (m->frame.length) r->counters.copied += m->frame.length;
    if (!r->closing) r->base.sink.arrived(r->base.sink.ctx, m->from, &m->frame, m->frame.length ? payload : NULL, 0);
}

static void answer_offer(rdma *r, const gw_rdma_message *m) {
    peer *p = &r->peers[m->from];
    gw_error error = {.rank = -1};
    if (r->closing) return;
    void *at = m->frame.length ? r->base.sink.recv_buffer(r->base.sink.ctx, m->from, &m->frame) : NULL;
    if (!at) {
        gw_rdma_fail_peer(r, m->from, GW_PROTOCOL, "it offered %llu bytes that have no place here",
                          (unsigned long long)m->frame.length);
        return;
    }
    slot *s = gw_rdma_slot_take(r, m->from, &m->frame, at, m->frame.length, &error);
    if (!s) {
        gw_rdma_fail_peer(r, m->from, error.status, "%s", error.text);
        return;
    }
    s->frame = m->frame;
    s->frame.credits = 0; /* the credits come with the write */
    if (!s->clear_due) p->clears_due++;
    s->clear_due = true;
    gw_rdma_list(r, m->from);
}

/* The peer's buffer is known: the packet goes back to the front of the queue. */
static void clear_to_write(rdma *r, const gw_rdma_message *m) {
    peer *p = &r->peers[m->from];
    gw_packet **at = &p->offered;
    while (*at && !same_message(&(*at)->frame, &m->frame)) at = &(*at)->next;
    if (!*at || (*at)->frame.length > m->recv_buffers[0].bytes) {
        gw_rdma_fail_peer(r, m->from, GW_PROTOCOL, "it made room for something that was not offered");
        return;
    }
    gw_packet *packet = *at;
    *at = packet->next;
    packet->next = p->head;
    p->head = packet;
    if (!p->tail) p->tail = packet;
    gw_rdma_learn(r, m->from, &m->frame, &m->recv_buffers[0]);
    gw_rdma_list(r, m->from);
}

static void take_written(rdma *r, const gw_rdma_message *m) {
    peer *p = &r->peers[m->from];
    slot *s = m->slot < p->slot_room ? &p->slots[m->slot] : NULL;
    if (!s || !s->used || s->recv_buffer.nonce != m->nonce || m->frame.length > s->recv_buffer.bytes ||
        !same_message(&s->frame, &m->frame)) {
        gw_rdma_fail_peer(r, m->from, GW_PROTOCOL, "it wrote where it had no receive buffer");
        return;
    }
    if (p->summed && gw_crc32c(0, s->at, m->frame.length) != m->payload_sum) {
        gw_rdma_fail_peer(r, m->from, GW_PROTOCOL,
                          "message %llu of operation %llu was changed on its way: its checksum is wrong",
                          (unsigned long long)m->frame.index, (unsigned long long)m->frame.op);
        return;
    }
    landed(r, m->from, s, &m->frame);
}

/* The rank whose message this is; -1: a stranger's. */
static int sender_of(const rdma *r, const uint8_t *bytes, size_t length) {
    int from = gw_rdma_message_from(bytes, length, r->world);
    bool known = from >= 0 && from != r->rank;
    if (known && CRYPTO_memcmp(bytes, r->peers[from].expects, GW_RDMA_COOKIE_BYTES) == 0) return from;
    for (int i = 0; i < r->world; i++)
        if (r->peers[i].summed && gw_rdma_cookie_damaged(bytes, length, r->peers[i].expects)) return i;
    return -1;
}

void gw_rdma_take_message(rdma *r, const uint8_t *bytes, size_t length) {
    int from = sender_of(r, bytes, length);
    if (from < 0) {
        r->counters.strangers++;
        return;
    }
    peer *p = &r->peers[from];
    gw_rdma_message m;
    gw_error error = {.rank = -1};
    p->received++;
    r->unsettled |= p->parting || p->closed;
    if (p->lost || p->status != GW_OK) return;
    if (p->summed && !gw_rdma_message_check_sum(bytes, &length)) {
        gw_rdma_fail_peer(r, from, GW_PROTOCOL, "a message was changed on its way: its checksum is wrong");
        return;
    }
    if (gw_rdma_message_read(&m, bytes, length, &error) != GW_OK) {
        gw_rdma_fail_peer(r, from, GW_PROTOCOL, "%s", error.text);
        return;
    }
    switch (m.kind) {
    case GW_RDMA_FRAME: take_frame(r, &m, bytes + GW_RDMA_HEADER_BYTES); break;
    case GW_RDMA_OFFER: answer_offer(r, &m); break;
    case GW_RDMA_CLEAR: clear_to_write(r, &m); break;
    case GW_RDMA_WRITTEN: take_written(r, &m); break;
    }
}

/* ---- writes ---- */

void gw_rdma_written(rdma *r, uint64_t immediate) {
    uint64_t place;
    unsigned credits;
    uint32_t nonce;
    gw_rdma_immediate_read(immediate, &place, &credits, &nonce);
    int rank = (int)(place % (uint64_t)r->world);
    uint64_t number = place / (uint64_t)r->world;
    peer *p = &r->peers[rank];
    slot *s = number < p->slot_room ? &p->slots[number] : NULL;
    if (p->summed || !s || !s->used || (r->fabric.immediate_bytes == 8 && s->recv_buffer.nonce != nonce)) {
        r->counters.strangers++;
        return;
    }
    p->received++;
    r->unsettled |= p->parting || p->closed;
    if (p->lost || p->status != GW_OK) return;
    s->frame.credits = (uint16_t)credits;
    landed(r, rank, s, &s->frame);
}
