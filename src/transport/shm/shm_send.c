/* shm_send.c - frames into the rings of peers. */
#include "base/copy.h"
#include "shm/registered_memory.h"
#include "transport/shm/shm_transport_internal.h"

#include <assert.h>

/* Sets the span of a ring: all rings that a rank writes share SPANS_BYTES. Allocates its pages now, so that the first
 * messages do not fault them in one by one. */
static void begin(const shm *self, shm_link *to) {
    to->span = RING_BYTES;
    while (to->span > SPAN_MIN && to->span > SPANS_BYTES / (uint32_t)self->links_count) to->span /= 2;
    gw_segment_populate(to->out->bytes, to->span);
}

/* The next slot, NULL if the ring is full or its owner is of another generation. */
static slot *next_slot(shm *self, shm_link *to, uint32_t *free_from) {
    uint64_t consumed = atomic_load(&to->out->consumed);
    if (consumed >> 32 != self->generation || to->produced - (uint32_t)consumed >= SLOTS) return NULL;
    *free_from = (uint32_t)consumed ? to->bytes_after[((uint32_t)consumed - 1) % SLOTS] : 0;
    return &to->out->slots[to->produced % SLOTS];
}

static void post(shm *self, shm_link *to, slot *at) {
    to->bytes_after[to->produced % SLOTS] = to->bytes_at;
    to->produced++;
    atomic_store(&at->turn, tagged(self, to->produced));
    gw_peer_map_wake(self->peer_map, to->rank);
}

static transfer choose(shm *self, const gw_packet *packet, gw_shm_ref *where) {
    uint64_t length = packet->frame.length;
    if (length < LENT_BYTES_MIN || packet->progress) return COPIED;
    return gw_peer_map_find(self->peer_map, packet->data, length, where) ? IN_PLACE : COPIED;
}

static uint32_t part_bytes(const gw_packet *packet) {
    uint64_t left = packet->frame.length - packet->progress;
    return left < PART_BYTES ? (uint32_t)left : PART_BYTES;
}

/* Parts do not wrap: the end of the span may stay unused. */
static uint32_t part_begin(const shm_link *to, uint32_t bytes) {
    uint32_t at = to->bytes_at % to->span;
    return at + bytes > to->span ? to->bytes_at + (to->span - at) : to->bytes_at;
}

/* Finds the place for a payload (a loan's number) or for its next part (an offset that only grows, modulo the span).
 * False: none is free. */
static bool find_place(const shm_link *to, transfer by, uint32_t free_from, const gw_packet *packet, uint32_t *place) {
    if (by == COPIED) {
        uint32_t bytes = part_bytes(packet);
        *place = part_begin(to, bytes);
        return *place + bytes - free_from <= to->span;
    }
    for (*place = 0; *place < LOANS && to->lent[*place];) (*place)++;
    return *place < LOANS;
}

static void put_part(shm_link *to, slot_content *what, uint32_t begin, gw_packet *packet) {
    uint32_t bytes = part_bytes(packet);
    what->place = begin % to->span;
    what->position = packet->progress;
    if (bytes) gw_copy(to->out->bytes + what->place, (const uint8_t *)packet->data + packet->progress, bytes);
    to->bytes_at = (begin + bytes + GW_CACHE_LINE - 1) / GW_CACHE_LINE * GW_CACHE_LINE;
    packet->progress += bytes;
}

typedef enum outcome { NO_ROOM, BEGUN, COPIED_WHOLE, LENT } outcome;

/* Puts a packet, or its next part, into a slot. */
static outcome send_one(shm *self, shm_link *to, gw_packet *packet) {
    uint32_t free_from, place;
    gw_shm_ref where = {0};
    slot *at = next_slot(self, to, &free_from);
    if (!at) return NO_ROOM;
    transfer by = choose(self, packet, &where);
    if (by == IN_PLACE && !gw_registered_lend(self->peer_map, where, 0, packet->frame.length, false))
        by = choose(self, packet, &where); /* it is registered no longer */
    if (!find_place(to, by, free_from, packet, &place)) return NO_ROOM;
    if (by == IN_PLACE) gw_registered_show(self->peer_map, where, 0, packet->frame.length);
    at->what = (slot_content){.transfer = by, .place = place, .where = where, .frame = packet->frame};
    if (by == COPIED) put_part(to, &at->what, place, packet);
    else to->lent[place] = packet;
    post(self, to, at);
    return by == IN_PLACE ? LENT : packet->progress < packet->frame.length ? BEGUN : COPIED_WHOLE;
}

/* The next packet to send: the first of the queue, but a frame without payload may pass a half-sent payload. */
static gw_packet **next_packet(shm_link *to) {
    gw_packet *first = to->queue.head, *second = first && first->progress ? first->next : NULL;
    return second && second->frame.kind != GW_FRAME_DATA ? &first->next : &to->queue.head;
}

static void remove_packet(shm_link *to, gw_packet **at) {
    gw_packet *packet = *at;
    *at = packet->next;
    if (to->queue.tail == packet) to->queue.tail = to->queue.head; /* NULL, or the one before it */
}

bool gw_shm_pump(shm *self, shm_link *to) {
    bool moved = false;
    for (gw_packet **at = next_packet(to); *at && !to->broken; at = next_packet(to)) {
        gw_packet *packet = *at;
        outcome of = send_one(self, to, packet);
        if (of == NO_ROOM) break;
        moved = true;
        if (of == BEGUN) continue;
        remove_packet(to, at);
        if (of == COPIED_WHOLE) self->base.sink.sent(self->base.sink.ctx, to->rank, packet);
    }
    return moved;
}

void gw_shm_send(gw_transport *transport, int peer, gw_packet *packet) {
    shm *self = (shm *)transport;
    shm_link *to = self->by_rank[peer];
    assert(to && "the peer is attached");
    if (!to->produced && !to->queue.head) begin(self, to);
    packet->progress = 0;
    gw_packet_enqueue(&to->queue, packet);
    if (*next_packet(to) == packet) gw_shm_pump(self, to);
}

/* Takes back the loans that the peer has returned. */
bool gw_shm_collect(shm *self, shm_link *to) {
    uint64_t returned = atomic_load(&to->in->returned);
    if ((uint32_t)returned == 0) return false;
    returned = atomic_fetch_and(&to->in->returned, ~(uint64_t)UINT32_MAX);
    if (returned >> 32 != self->generation) return false;
    for (uint32_t loan = 0; loan < LOANS; loan++) {
        gw_packet *packet = to->lent[loan];
        if (!(returned >> loan & 1) || !packet) continue;
        to->lent[loan] = NULL;
        self->base.sink.sent(self->base.sink.ctx, to->rank, packet);
    }
    return true;
}

bool gw_shm_can_send(shm *self, shm_link *to) {
    uint32_t free_from, place;
    gw_shm_ref where;
    const gw_packet *packet = *next_packet(to);
    return packet && next_slot(self, to, &free_from) &&
           find_place(to, choose(self, packet, &where), free_from, packet, &place);
}
