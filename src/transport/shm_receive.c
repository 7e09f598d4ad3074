/* shm_receive.c - frames from the own rings: their payloads are landed, or shown where they lie. */
#include "transport/copy.h"
#include "transport/shm_page.h"

static void lose_link(shm *self, shm_link *to, gw_status status, const char *detail) {
    if (to->broken) return;
    to->broken = true;
    self->base.sink.lost(self->base.sink.ctx, to->rank, status, detail);
}

static bool break_link(shm *self, shm_link *to, const char *detail) {
    lose_link(self, to, GW_PROTOCOL, detail);
    return false;
}

/* Sets the loan's bit in the lender's harbour, unless the lender has gone on to another generation. */
static void give_back(shm *self, shm_link *from, uint32_t loan) {
    uint64_t was = atomic_load(&from->out->returned);
    do {
        if (was >> 32 != self->generation) return;
    } while (!atomic_compare_exchange_weak(&from->out->returned, &was, was | UINT64_C(1) << loan));
    gw_harbour_ring(self->harbour, from->rank);
}

void gw_shm_release(gw_transport *transport, int peer, uint64_t ticket) {
    shm *self = (shm *)transport;
    shm_link *from = self->by_rank[peer];
    uint32_t loan = (uint32_t)(ticket - 1);
    if (ticket == 0 || ticket > LOANS || !from->seen[loan]) return;
    gw_harbour_unpin(from->seen[loan]);
    from->seen[loan] = NULL;
    give_back(self, from, loan);
}

static void arrived(shm *self, shm_link *from, const gw_frame *frame, const void *data, uint64_t ticket) {
    self->base.sink.arrived(self->base.sink.ctx, from->rank, frame, data, ticket);
}

/* The engine works on a piece where it lies, or it is copied to where the payload is to go. */
static bool use_piece(shm *self, shm_link *from, const uint8_t *piece, uint64_t bytes) {
    const gw_sink *sink = &self->base.sink;
    bool first = from->landed == 0;
    if (first || from->passed_on)
        from->passed_on = sink->piece && sink->piece(sink->ctx, from->rank, &from->coming, from->landed, piece, bytes);
    if (from->passed_on) return true;
    if (first) from->landing = sink->landing(sink->ctx, from->rank, &from->coming);
    if (!from->landing) return break_link(self, from, "it sent data for which there is no place");
    gw_copy(from->landing + from->landed, piece, bytes);
    return true;
}

static bool take_copied(shm *self, shm_link *from, const notice *at) {
    if (!from->partial) {
        from->coming = at->frame;
        from->landing = NULL;
        from->landed = 0;
    }
    uint64_t left = from->coming.length - from->landed, bytes = left < PIECE_BYTES ? left : PIECE_BYTES;
    if (at->position != from->landed || at->place > RING_BYTES - bytes)
        return break_link(self, from, "it sent a piece of a payload that lies outside its ring or is not the next");
    if (bytes && !use_piece(self, from, from->in->bytes + at->place, bytes)) return false;
    from->landed += bytes;
    from->partial = from->landed < from->coming.length;
    if (!from->partial) arrived(self, from, &from->coming, from->landing, 0);
    return true;
}

static bool take_shown(shm *self, shm_link *from, const notice *at) {
    if (from->partial) return break_link(self, from, "it sent a payload in the middle of another");
    gw_error error = {.status = GW_OK};
    gw_mapping *mapping = gw_harbour_pin(self->harbour, from->rank, at->where, &error);
    if (!mapping || at->place >= LOANS || from->seen[at->place] || at->where.offset > mapping->segment.bytes ||
        at->frame.length > mapping->segment.bytes - at->where.offset) {
        gw_harbour_unpin(mapping);
        if (mapping) return break_link(self, from, "it sent a reference to memory that it does not share");
        lose_link(self, from, error.status, error.text);
        return false;
    }
    from->seen[at->place] = mapping;
    arrived(self, from, &at->frame, (uint8_t *)mapping->segment.base + at->where.offset, at->place + 1);
    return true;
}

static bool take(shm *self, shm_link *from, const notice *at) {
    gw_error error = {.status = GW_OK};
    if (gw_frame_check(&at->frame, &error)) return break_link(self, from, error.text);
    if (at->frame.kind != GW_FRAME_DATA) { /* which may come between two pieces */
        arrived(self, from, &at->frame, NULL, 0);
        return true;
    }
    switch (at->carriage) {
    case COPIED: return take_copied(self, from, at);
    case SHOWN: return take_shown(self, from, at);
    }
    return break_link(self, from, "it sent a payload by an unknown way");
}

static void give_slots_back(shm *self, shm_link *from) {
    atomic_store(&from->in->consumed, tagged(self, from->consumed));
    gw_harbour_ring(self->harbour, from->rank);
}

/* Of taking it, in bytes. */
static uint32_t cost(const notice *what) {
    uint64_t bytes = what->frame.length, most = what->carriage == COPIED ? PIECE_BYTES : POLL_BYTES;
    return FRAME_COST + (uint32_t)(bytes < most ? bytes : most);
}

bool gw_shm_receive(shm *self, shm_link *from) {
    uint32_t generation = self->generation, spent = 0, unreturned = 0;
    bool moved = false;
    while (!from->broken && spent < POLL_BYTES) {
        slot *at = &from->in->slots[from->consumed % SLOTS];
        if (atomic_load(&at->turn) != tagged(self, from->consumed + 1)) break;
        notice what = at->what; /* once: the peer could change it between two looks */
        moved = true;
        if (!take(self, from, &what)) break;
        if (self->generation != generation) return true;
        from->consumed++;
        spent += cost(&what);
        unreturned += cost(&what);
        if (unreturned < RETURN_BYTES) continue;
        give_slots_back(self, from);
        unreturned = 0;
    }
    if (unreturned) give_slots_back(self, from);
    return moved;
}
