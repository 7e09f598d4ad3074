/* around.c - see around.h. */
#include "plan/around.h"

uint32_t gw_around_slots(const gw_segments *cut, uint32_t size, int depth) {
    return (uint32_t)gw_min_size(2 * (size_t)depth, (size_t)(cut->columns * (size - 1)));
}

uint64_t gw_around_steps(const gw_around *ring) { return ring->cut.columns * (ring->size - 1); }

uint64_t gw_around_through(const gw_around *ring, const gw_segment *segment, uint64_t round, uint64_t column) {
    return segment->before * (ring->size - 1) + round * segment->columns + column + 1;
}

gw_slot gw_around_slot(const gw_around *ring, uint64_t index, size_t count) {
    return gw_slot_at(GW_SPACE_WORK, (size_t)(index % ring->slots) * ring->cut.piece, count);
}

/* The block `back` places before this member. */
static uint32_t block_before(const gw_around *ring, uint64_t back) {
    return (uint32_t)((ring->member + 2 * (uint64_t)ring->size - back) % ring->size);
}

static gw_pass pass_of(const gw_around *ring, uint64_t index, uint64_t back) {
    gw_pass pass = {.segment = gw_segment_of_step(&ring->cut, ring->size - 1, index)};
    pass.round = pass.segment.within / pass.segment.columns;
    pass.column = pass.segment.within % pass.segment.columns;
    pass.block = block_before(ring, pass.round + back);
    pass.first = pass.round == 0;
    pass.last = pass.round == ring->size - 2;
    return pass;
}

gw_pass gw_around_rs_send(const gw_around *ring, uint64_t index, gw_action *out) {
    gw_pass pass = pass_of(ring, index, 1);
    *out = (gw_action){.kind = GW_STEP_SEND};
    if (!pass.first) out->ready[0] = gw_after(ring->rs_recv, index - pass.segment.columns + 1);
    return pass;
}

/* A slot is free again when its partial sum has been sent on, or, in the last round, has become a result. */
gw_pass gw_around_rs_recv(const gw_around *ring, uint64_t index, gw_action *out) {
    gw_pass pass = pass_of(ring, index, 2);
    *out = (gw_action){.kind = GW_STEP_RECV_REDUCE, .finish = pass.last};
    if (index >= ring->slots) {
        uint64_t before = index - ring->slots;
        gw_pass user = pass_of(ring, before, 2);
        out->free[0] = user.last ? gw_after(ring->rs_recv, before + 1)
                                 : gw_after(ring->rs_send, before + user.segment.columns + 1);
    }
    return pass;
}

gw_pass gw_around_ag_send(const gw_around *ring, uint64_t index, gw_action *out) {
    gw_pass pass = pass_of(ring, index, 0);
    *out = (gw_action){.kind = GW_STEP_SEND};
    if (!pass.first) out->ready[0] = gw_after(ring->ag_recv, index - pass.segment.columns + 1);
    return pass;
}

gw_pass gw_around_ag_recv(const gw_around *ring, uint64_t index, gw_action *out) {
    *out = (gw_action){.kind = GW_STEP_RECV};
    return pass_of(ring, index, 1);
}
