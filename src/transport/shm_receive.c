/* shm_receive.c - frames from the own rings: their payloads are landed, or shown where they lie. */
#include "transport/copy.h"
#include "transport/shm_page.h"

static void lose_link(shm *self, link *to, gw_status status, const char *detail) {
    if (to->broken) return;
    to->broken = true;
    self->base.sink.lost(self->base.sink.ctx, to->rank, status, detail);
}

static void break_link(shm *self, link *to, const char *detail) { lose_link(self, to, GW_PROTOCOL, detail); }

/* Sets the loan's bit in the lender's harbour, unless the lender has gone on to another generation. */
static void give_back(shm *self, link *from, uint32_t loan) {
    uint64_t was = atomic_load(&from->out->returned);
    do {
        if (was >> 32 != self->generation) return;
    } while (!atomic_compare_exchange_weak(&from->out->returned, &was, was | UINT64_C(1) << loan));
    gw_harbour_ring(self->harbour, from->rank);
}

void gw_shm_release(gw_transport *transport, int peer, uint64_t ticket) {
    shm *self = (shm *)transport;
    link *from = self->by_rank[peer];
    uint32_t loan = (uint32_t)(ticket - 1);
    if (ticket == 0 || ticket > LOANS || !from->seen[loan]) return;
    gw_harbour_unpin(from->seen[loan]);
    from->seen[loan] = NULL;
    give_back(self, from, loan);
}

static void arrived(shm *self, link *from, const gw_frame *frame, const void *data, uint64_t ticket) {
    self->base.sink.arrived(self->base.sink.ctx, from->rank, frame, data, ticket);
}

/* Where the payload is to go; asked once for each frame. */
static bool land(shm *self, link *from, const gw_frame *frame) {
    if (!from->landing) {
        from->landing = self->base.sink.landing(self->base.sink.ctx, from->rank, frame);
        from->landed = 0;
    }
    if (!from->landing) break_link(self, from, "it sent data for which there is no place");
    return from->landing != NULL;
}

static void landed(shm *self, link *from, const gw_frame *frame) {
    void *data = from->landing;
    from->landing = NULL;
    arrived(self, from, frame, data, 0);
}

static bool take_inline(shm *self, link *from, const slot *at) {
    uint64_t length = at->frame.length;
    if (length > GW_SHM_INLINE_BYTES || at->place > INLINE_RING - length) {
        break_link(self, from, "it sent a small payload that lies outside its ring");
        return false;
    }
    if (length == 0) {
        arrived(self, from, &at->frame, NULL, 0);
        return true;
    }
    if (!land(self, from, &at->frame)) return false;
    gw_copy(from->landing, from->in->bytes + at->place, length);
    landed(self, from, &at->frame);
    return true;
}

static bool take_shown(shm *self, link *from, const slot *at) {
    gw_error error = {.status = GW_OK};
    gw_mapping *mapping = gw_harbour_pin(self->harbour, from->rank, at->where, &error);
    if (!mapping || at->place >= LOANS || from->seen[at->place] || at->where.offset > mapping->segment.bytes ||
        at->frame.length > mapping->segment.bytes - at->where.offset) {
        gw_harbour_unpin(mapping);
        if (mapping) break_link(self, from, "it sent a reference to memory that it does not share");
        else lose_link(self, from, error.status, error.text);
        return false;
    }
    from->seen[at->place] = mapping;
    arrived(self, from, &at->frame, (uint8_t *)mapping->segment.base + at->where.offset, at->place + 1);
    return true;
}

/* At most POLL_BYTES at once; true when all of it is here. */
static bool take_read(shm *self, link *from, const slot *at) {
    if (!land(self, from, &at->frame)) return false;
    uint64_t left = at->frame.length - from->landed, bytes = left < POLL_BYTES ? left : POLL_BYTES;
    gw_harbour_peer *peer = &self->harbour->peers[from->rank];
    bool got = at->place < LOANS &&
               gw_harbour_read(peer, from->landing + from->landed, at->address + from->landed, bytes);
    /* A sender that has started anew may have written there before it was read. */
    if (atomic_load(&peer->page->generation) != self->generation) return false;
    if (!got) {
        lose_link(self, from, gw_harbour_ended(peer) ? GW_PEER_LOST : GW_PROTOCOL, "its memory can no longer be read");
        return false;
    }
    from->landed += bytes;
    if (from->landed < at->frame.length) return false;
    uint32_t loan = at->place;
    landed(self, from, &at->frame);
    give_back(self, from, loan);
    return true;
}

static bool take_staged(shm *self, link *from, const slot *at) {
    if (!land(self, from, &at->frame)) return false;
    uint64_t left = at->frame.length - from->landed, bytes = left < CHUNK_BYTES ? left : CHUNK_BYTES;
    if (at->place >= CHUNKS || at->position != from->landed) {
        break_link(self, from, "it staged a payload out of order");
        return false;
    }
    gw_copy(from->landing + from->landed, from->peer_quay->staged[at->place], bytes);
    uint64_t lease = at->address;
    if (!atomic_compare_exchange_strong(&from->peer_quay->chunks[at->place].lease, &lease, 0)) return false;
    gw_harbour_ring(self->harbour, from->rank);
    from->landed += bytes;
    if (from->landed == at->frame.length) landed(self, from, &at->frame);
    return true;
}

static bool take(shm *self, link *from, const slot *at) {
    if (at->frame.kind < GW_FRAME_DATA || at->frame.kind > GW_FRAME_CREDIT ||
        at->frame.length > GW_FRAME_PAYLOAD_MAX) {
        break_link(self, from, "it sent a frame of an unknown kind");
        return false;
    }
    switch (at->carriage) {
    case INLINE: return take_inline(self, from, at);
    case SHOWN: return take_shown(self, from, at);
    case READ: return take_read(self, from, at);
    case STAGED: return take_staged(self, from, at);
    }
    break_link(self, from, "it sent a payload by an unknown way");
    return false;
}

/* A slot is returned when its frame is delivered; a large payload that is not yet whole stays where it is. */
bool gw_shm_receive(shm *self, link *from) {
    uint32_t before = from->consumed, generation = self->generation;
    size_t spent = 0;
    bool moved = false;
    while (!from->broken && spent < POLL_BYTES) {
        slot *at = &from->in->slots[from->consumed % SLOTS];
        if (atomic_load(&at->turn) != tagged(self, from->consumed + 1)) break;
        moved = true;
        spent += at->carriage == STAGED ? CHUNK_BYTES : at->carriage == READ ? POLL_BYTES : GW_SHM_INLINE_BYTES / 8;
        if (!take(self, from, at) || self->generation != generation) break;
        from->consumed++;
        if (from->consumed - before < SLOTS / 4) continue;
        before = from->consumed;
        atomic_store(&from->in->consumed, tagged(self, from->consumed));
        gw_harbour_ring(self->harbour, from->rank);
    }
    if (from->consumed != before && self->generation == generation) {
        atomic_store(&from->in->consumed, tagged(self, from->consumed));
        gw_harbour_ring(self->harbour, from->rank);
    }
    return moved;
}
