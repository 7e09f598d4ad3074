/* around.h - the order of a pipelined ring, apart from what travels: who passes which block when, and what is waited
 * for. ring.c goes around all ranks, hierarchical.c around the hosts.
 *
 * The ring's members hold `size` blocks; member m ends the reduce-scatter with block m and begins the all-gather with
 * it. A round passes one block of a segment on, as `columns` messages. Partial sums land in circular WORK slots, are
 * reduced there and sent on from there; twice the pipeline's depth of slots keeps a full round on either side of the
 * rank. */
#ifndef GW_PLAN_AROUND_H
#define GW_PLAN_AROUND_H

#include "plan/build.h"

typedef struct gw_around {
    gw_segments cut;
    uint32_t size, member;
    uint32_t rs_send, rs_recv, ag_send, ag_recv; /* stream numbers */
    uint32_t slots;                              /* landing slots of cut.piece elements, from the start of WORK */
} gw_around;

typedef struct gw_pass {
    gw_segment segment;
    uint64_t round, column; /* column within the segment */
    uint32_t block;
    bool first, last; /* round of the reduce-scatter or all-gather */
} gw_pass;

/* The slots for `depth` messages in flight; fewer where there are fewer messages. */
uint32_t gw_around_slots(const gw_segments *cut, uint32_t size, int depth);
uint64_t gw_around_steps(const gw_around *ring); /* of each of the four streams */
/* Steps of a stream that are complete when the message of (segment, round, column) is. */
uint64_t gw_around_through(const gw_around *ring, const gw_segment *segment, uint64_t round, uint64_t column);

/* Each fills kind and waits of step `index` of its stream (ready[1] and ready[2] stay free for the caller) and says
 * which block it is about. */
gw_pass gw_around_rs_send(const gw_around *ring, uint64_t index, gw_action *out);
gw_pass gw_around_rs_recv(const gw_around *ring, uint64_t index, gw_action *out);
gw_pass gw_around_ag_send(const gw_around *ring, uint64_t index, gw_action *out);
gw_pass gw_around_ag_recv(const gw_around *ring, uint64_t index, gw_action *out);

/* The landing slot of receive `index`, for a message of count elements. The partial sum sent by rs_send `index` lies in
 * the slot of receive index - columns. */
gw_slot gw_around_slot(const gw_around *ring, uint64_t index, size_t count);

#endif
