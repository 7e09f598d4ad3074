/* shm_receive.c - frames from our own rings. Payloads are copied out, or read in place. */
#include "base/copy.h"
#include "transport/shm/shm_transport_internal.h"

static void lose_link(shm *self, shm_link *to, gw_status status, const char *detail) {
    if (to->broken) return;
    to->broken = true;
    self->base.sink.lost(self->base.sink.ctx, to->rank, status, detail);
}

static bool break_link(shm *self, shm_link *to, const char *detail) {
    lose_link(self, to, GW_PROTOCOL, detail);
    return false;
}

/* Sets the loan's bit in the lender's shared page, unless the lender is in another generation. */
static void give_back(shm *self, shm_link *from, uint32_t loan) {
    uint64_t was = atomic_load(&from->out->returned);
    do {
        if (was >> 32 != self->generation) return;
    } while (!atomic_compare_exchange_weak(&from->out->returned, &was, was | UINT64_C(1) << loan));
    gw_peer_map_wake(self->peer_map, from->rank);
}

void gw_shm_release(gw_transport *transport, int peer, uint64_t ticket) {
    shm *self = (shm *)transport;
    shm_link *from = self->by_rank[peer];
    uint32_t loan = (uint32_t)(ticket - 1);
    if (ticket == 0 || ticket > LOANS || !from->seen[loan]) return;
    gw_peer_map_unpin(from->seen[loan]);
    from->seen[loan] = NULL;
    give_back(self, from, loan);
}

static void arrived(shm *self, shm_link *from, const gw_frame *frame, const void *data, uint64_t ticket) {
    self->base.sink.arrived(self->base.sink.ctx, from->rank, frame, data, ticket);
}

/* Passes a part in the ring to the engine, or copies it to the payload's receive buffer. */
static bool use_part(shm *self, shm_link *from, const uint8_t *part, uint64_t bytes) {
    const gw_sink *sink = &self->base.sink;
    bool first = from->arrived_bytes == 0;
    if (first || from->by_parts)
        from->by_parts =
            sink->part && sink->part(sink->ctx, from->rank, &from->coming, from->arrived_bytes, part, bytes);
    if (from->by_parts) return true;
    if (first) from->recv_buffer = sink->recv_buffer(sink->ctx, from->rank, &from->coming);
    if (!from->recv_buffer) return break_link(self, from, "it sent data for which there is no place");
    gw_copy(from->recv_buffer + from->arrived_bytes, part, bytes);
    return true;
}

static bool take_copied(shm *self, shm_link *from, const slot_content *at) {
    if (!from->partial) {
        from->coming = at->frame;
        from->recv_buffer = NULL;
        from->arrived_bytes = 0;
    }
    uint64_t left = from->coming.length - from->arrived_bytes, bytes = left < PART_BYTES ? left : PART_BYTES;
    if (at->position != from->arrived_bytes || at->place > RING_BYTES - bytes)
        return break_link(self, from, "it sent a part of a payload that lies outside its ring or is not the next");
    if (bytes && !use_part(self, from, from->in->bytes + at->place, bytes)) return false;
    from->arrived_bytes += bytes;
    from->partial = from->arrived_bytes < from->coming.length;
    if (!from->partial) arrived(self, from, &from->coming, from->recv_buffer, 0);
    return true;
}

static bool take_in_place(shm *self, shm_link *from, const slot_content *at) {
    if (from->partial) return break_link(self, from, "it sent a payload in the middle of another");
    gw_error error = {.status = GW_OK};
    gw_mapping *mapping = gw_peer_map_pin(self->peer_map, from->rank, at->where, &error);
    if (!mapping || at->place >= LOANS || from->seen[at->place] || at->where.offset > mapping->segment.bytes ||
        at->frame.length > mapping->segment.bytes - at->where.offset) {
        gw_peer_map_unpin(mapping);
        if (mapping) return break_link(self, from, "it sent a reference to memory that it does not share");
        lose_link(self, from, error.status, error.text);
        return false;
    }
    from->seen[at->place] = mapping;
    arrived(self, from, &at->frame, (uint8_t *)mapping->segment.base + at->where.offset, at->place + 1);
    return true;
}

static bool take(shm *self, shm_link *from, const slot_content *at) {
    gw_error error = {.status = GW_OK};
    if (gw_frame_check(&at->frame, &error)) return break_link(self, from, error.text);
    if (at->frame.kind != GW_FRAME_DATA) { /* a frame without payload may come between two parts */
        arrived(self, from, &at->frame, NULL, 0);
        return true;
    }
    switch (at->transfer) {
    case COPIED: return take_copied(self, from, at);
    case IN_PLACE: return take_in_place(self, from, at);
    }
    return break_link(self, from, "it sent a payload by an unknown way");
}

static void give_slots_back(shm *self, shm_link *from) {
    atomic_store(&from->in->consumed, tagged(self, from->consumed));
    gw_peer_map_wake(self->peer_map, from->rank);
}

/* The cost of receiving a slot, in bytes: copying this many takes as long. */
static uint32_t cost(const slot_content *what) {
    uint64_t bytes = what->frame.length, most = what->transfer == COPIED ? PART_BYTES : POLL_BYTES;
    return FRAME_COST + (uint32_t)(bytes < most ? bytes : most);
}

bool gw_shm_receive(shm *self, shm_link *from) {
    uint32_t generation = self->generation, spent = 0, unreturned = 0;
    bool moved = false;
    while (!from->broken && spent < POLL_BYTES) {
        slot *at = &from->in->slots[from->consumed % SLOTS];
        if (atomic_load(&at->turn) != tagged(self, from->consumed + 1)) break;
        slot_content what;
        gw_read_once(&what, &at->what, sizeof what);
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
