/* ring_walk.c - see ring_walk.h. */
#include "plan/ring_walk.h"

uint32_t gw_ring_walk_slots(const gw_pipeline_cut *cut, uint32_t size, int depth) {
    return (uint32_t)gw_min_size(2 * (size_t)depth, (size_t)(cut->columns * (size - 1)));
}

uint64_t gw_ring_walk_steps(const gw_ring_walk *ring) { return ring->cut.columns * (ring->size - 1); }

uint64_t gw_ring_walk_through(const gw_ring_walk *ring, const gw_pipeline_window *window, uint64_t round,
                              uint64_t column) {
    return window->before * (ring->size - 1) + round * window->columns + column + 1;
}

gw_slot gw_ring_walk_slot(const gw_ring_walk *ring, uint64_t index, size_t count) {
    return gw_slot_at(GW_SPACE_WORK, (size_t)(index % ring->slots) * ring->cut.chunk, count);
}

/* The block `back` places before this member. */
static uint32_t block_before(const gw_ring_walk *ring, uint64_t back) {
    return (uint32_t)((ring->member + 2 * (uint64_t)ring->size - back) % ring->size);
}

static gw_ring_hop pass_of(const gw_ring_walk *ring, uint64_t index, uint64_t back) {
    gw_ring_hop pass = {.window = gw_pipeline_window_of_step(&ring->cut, ring->size - 1, index)};
    pass.round = pass.window.within / pass.window.columns;
    pass.column = pass.window.within % pass.window.columns;
    pass.block = block_before(ring, pass.round + back);
    pass.first = pass.round == 0;
    pass.last = pass.round == ring->size - 2;
    return pass;
}

gw_ring_hop gw_ring_walk_rs_send(const gw_ring_walk *ring, uint64_t index, gw_action *out) {
    gw_ring_hop pass = pass_of(ring, index, 1);
    *out = (gw_action){.kind = GW_ACTION_SEND};
    if (!pass.first) out->ready[0] = gw_post_op(ring->rs_recv, index - pass.window.columns + 1);
    return pass;
}

/* A slot is free again when its partial sum has been sent on, or, in the last round, has become a result. */
gw_ring_hop gw_ring_walk_rs_recv(const gw_ring_walk *ring, uint64_t index, gw_action *out) {
    gw_ring_hop pass = pass_of(ring, index, 2);
    *out = (gw_action){.kind = GW_ACTION_RECV_REDUCE, .finish = pass.last};
    if (index >= ring->slots) {
        uint64_t before = index - ring->slots;
        gw_ring_hop user = pass_of(ring, before, 2);
        out->free[0] = user.last ? gw_post_op(ring->rs_recv, before + 1)
                                 : gw_post_op(ring->rs_send, before + user.window.columns + 1);
    }
    return pass;
}

gw_ring_hop gw_ring_walk_ag_send(const gw_ring_walk *ring, uint64_t index, gw_action *out) {
    gw_ring_hop pass = pass_of(ring, index, 0);
    *out = (gw_action){.kind = GW_ACTION_SEND};
    if (!pass.first) out->ready[0] = gw_post_op(ring->ag_recv, index - pass.window.columns + 1);
    return pass;
}

gw_ring_hop gw_ring_walk_ag_recv(const gw_ring_walk *ring, uint64_t index, gw_action *out) {
    *out = (gw_action){.kind = GW_ACTION_RECV};
    return pass_of(ring, index, 1);
}
