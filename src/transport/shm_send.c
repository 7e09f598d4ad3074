/* shm_send.c - frames on their way into the rings of peers. */
#include "transport/copy.h"
#include "transport/shm_page.h"

#include <assert.h>

/* The next slot, NULL if the ring is full or its owner is of another generation. */
static slot *next_slot(shm *self, link *to, uint32_t *free_from) {
    uint64_t consumed = atomic_load(&to->out->consumed);
    if (consumed >> 32 != self->generation || to->produced - (uint32_t)consumed >= SLOTS) return NULL;
    *free_from = (uint32_t)consumed ? to->bytes_after[((uint32_t)consumed - 1) % SLOTS] : 0;
    return &to->out->slots[to->produced % SLOTS];
}

static void post(shm *self, link *to, slot *at) {
    to->bytes_after[to->produced % SLOTS] = to->bytes_at;
    to->produced++;
    atomic_store(&at->turn, tagged(self, to->produced));
    gw_harbour_ring(self->harbour, to->rank);
}

static carriage choose(shm *self, link *to, const gw_packet *packet, gw_shared *where) {
    uint64_t length = packet->frame.length;
    if (length <= GW_SHM_INLINE_BYTES) return INLINE;
    if (packet->progress) return STAGED;
    if (gw_harbour_find(self->harbour, packet->data, length, where)) return SHOWN;
    return length >= READ_BYTES_MIN && atomic_load(&to->out->reads) ? READ : STAGED;
}

/* Payloads do not wrap: what is left at the end of the ring may stay unused. */
static uint32_t inline_begin(const link *to, uint32_t bytes) {
    uint32_t at = to->bytes_at % INLINE_RING;
    return at + bytes > INLINE_RING ? to->bytes_at + (INLINE_RING - at) : to->bytes_at;
}

/* A peer that returns nothing must not keep the staging area from the others. */
static uint32_t free_chunk(const shm *self, const link *to) {
    uint32_t found = CHUNKS, held = 0, most = CHUNKS / (uint32_t)self->links_count;
    for (uint32_t chunk = CHUNKS; chunk-- > 0;) {
        if (!atomic_load(&self->own->chunks[chunk].lease)) found = chunk;
        else held += self->borrower[chunk] == to;
    }
    return held < (most < 2 ? 2 : most) ? found : CHUNKS;
}

/* The place a payload would take: an offset, a loan, a chunk. False: none is free. */
static bool find_place(shm *self, link *to, carriage by, uint32_t free_from, const gw_packet *packet, uint32_t *place) {
    uint32_t bytes = (uint32_t)packet->frame.length;
    switch (by) {
    case INLINE: *place = inline_begin(to, bytes); return *place + bytes - free_from <= INLINE_RING;
    case STAGED: *place = free_chunk(self, to); return *place < CHUNKS;
    default:
        for (*place = 0; *place < LOANS && to->lent[*place];) (*place)++;
        return *place < LOANS;
    }
}

static void put_inline(link *to, slot *at, uint32_t begin, const gw_packet *packet) {
    uint32_t bytes = (uint32_t)packet->frame.length;
    at->place = begin % INLINE_RING;
    if (bytes) gw_copy(to->out->bytes + at->place, packet->data, bytes);
    to->bytes_at = (begin + bytes + 7) / 8 * 8;
}

static void put_staged(shm *self, link *to, slot *at, gw_packet *packet) {
    uint64_t left = packet->frame.length - packet->progress, bytes = left < CHUNK_BYTES ? left : CHUNK_BYTES;
    gw_copy(self->own->staged[at->place], (const uint8_t *)packet->data + packet->progress, bytes);
    at->address = ++self->leases;
    at->position = packet->progress;
    self->borrower[at->place] = to;
    atomic_store(&self->own->chunks[at->place].lease, at->address);
    packet->progress += bytes;
}

/* Puts the first packet, or its next chunk, into a slot. *given: the packet's data is no longer needed. */
static bool send_one(shm *self, link *to, gw_packet *packet, bool *given, bool *whole) {
    uint32_t free_from, place;
    slot *at = next_slot(self, to, &free_from);
    if (!at) return false;
    carriage by = choose(self, to, packet, &at->where);
    if (!find_place(self, to, by, free_from, packet, &place)) return false;
    at->frame = packet->frame;
    at->carriage = by;
    at->place = place;
    *given = *whole = true;
    if (by == INLINE) {
        put_inline(to, at, place, packet);
    } else if (by == STAGED) {
        put_staged(self, to, at, packet);
        *given = *whole = packet->progress == packet->frame.length;
    } else {
        at->address = (uint64_t)(uintptr_t)packet->data;
        to->lent[place] = packet;
        *given = false;
    }
    post(self, to, at);
    return true;
}

bool gw_shm_pump(shm *self, link *to) {
    bool moved = false, given, whole;
    while (to->head && !to->broken && send_one(self, to, to->head, &given, &whole)) {
        moved = true;
        if (!whole) continue;
        gw_packet *packet = to->head;
        to->head = packet->next;
        if (!to->head) to->tail = NULL;
        if (given) self->base.sink.sent(self->base.sink.ctx, to->rank, packet);
    }
    return moved;
}

void gw_shm_send(gw_transport *transport, int peer, gw_packet *packet) {
    shm *self = (shm *)transport;
    link *to = self->by_rank[peer];
    assert(to && "gw_shm_reaches says who can be sent to");
    packet->next = NULL;
    packet->progress = 0;
    if (to->tail) to->tail->next = packet;
    else to->head = packet;
    to->tail = packet;
    if (to->head == packet) gw_shm_pump(self, to);
}

/* Loans that have come back. */
bool gw_shm_collect(shm *self, link *to) {
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

bool gw_shm_can_send(shm *self, link *to) {
    uint32_t free_from, place;
    gw_shared where;
    return to->head && next_slot(self, to, &free_from) &&
           find_place(self, to, choose(self, to, to->head, &where), free_from, to->head, &place);
}
