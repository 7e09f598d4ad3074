/* ring_walk.h - the order of a pipelined ring, without the data: which member passes which block when, and what it
 * waits for. ring.c goes around all ranks, hierarchical.c around the hosts.
 *
 * The members of the ring hold `size` blocks; member m ends the reduce-scatter with block m and begins the all-gather
 * with it. A round passes one block of a window on, as `columns` messages. Partial sums land in circular WORK slots,
 * are reduced there and sent on from there; there are twice as many slots as the pipeline is deep, so that one full
 * round can arrive while another is sent on. */
#ifndef GW_PLAN_RING_WALK_H
#define GW_PLAN_RING_WALK_H

#include "plan/build.h"

typedef struct gw_ring_walk {
    gw_pipeline_cut cut;
    uint32_t size, member;
    uint32_t rs_send, rs_recv, ag_send, ag_recv; /* stream numbers */
    uint32_t slots;                              /* landing slots of cut.chunk elements each, from the start of WORK */
} gw_ring_walk;

typedef struct gw_ring_hop {
    gw_pipeline_window window;
    uint64_t round, column; /* column within the window */
    uint32_t block;
    bool first, last; /* it is the first, last round of the reduce-scatter or all-gather */
} gw_ring_hop;

/* The slots for `depth` messages in flight; fewer where there are fewer messages. */
uint32_t gw_ring_walk_slots(const gw_pipeline_cut *cut, uint32_t size, int depth);
uint64_t gw_ring_walk_steps(const gw_ring_walk *ring); /* of each of the four streams */
/* Steps of a stream that are complete when the message of (window, round, column) is. */
uint64_t gw_ring_walk_through(const gw_ring_walk *ring, const gw_pipeline_window *window, uint64_t round,
                              uint64_t column);

/* Each fills kind and waits of step `index` of its stream (ready[1] and ready[2] stay free for the caller) and
 * returns the block it handles. */
gw_ring_hop gw_ring_walk_rs_send(const gw_ring_walk *ring, uint64_t index, gw_action *out);
gw_ring_hop gw_ring_walk_rs_recv(const gw_ring_walk *ring, uint64_t index, gw_action *out);
gw_ring_hop gw_ring_walk_ag_send(const gw_ring_walk *ring, uint64_t index, gw_action *out);
gw_ring_hop gw_ring_walk_ag_recv(const gw_ring_walk *ring, uint64_t index, gw_action *out);

/* The landing slot of receive `index`, for a message of count elements. The partial sum sent by rs_send `index` lies in
 * the slot of receive index - columns. */
gw_slot gw_ring_walk_slot(const gw_ring_walk *ring, uint64_t index, size_t count);

#endif
