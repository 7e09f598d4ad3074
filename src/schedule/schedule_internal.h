/* schedule_internal.h - what schedule.c, cut.c and the policies share. */
#ifndef GW_SCHEDULE_INTERNAL_H
#define GW_SCHEDULE_INTERNAL_H

#include "schedule/schedule.h"

struct gw_schedule {
    const gw_policy *policy;
    gw_schedule_settings settings;
    gw_schedule_facts facts;
    gw_schedule_tensor *tensors;
    int tensor_count;
    gw_piece *pieces; /* in the order in which backward completes them */
    int piece_count, piece_room;
    gw_span *spans;
    int span_count, span_room;
    int *first_piece, *last_piece; /* of each tensor; -1: it has no elements */
    bool *picked;        /* of each tensor; scratch of policies that rank pieces */
    int cursor;          /* in-order policies: how many starts of this step have been made */
    uint64_t steps_over; /* backward passes that have ended */
    int in_flight;       /* pieces */
    size_t in_flight_bytes;
};

/* cut.c: from the last tensor to the first. A piece is closed when the next tensor would take it over fuse_bytes; those
 * over slice_bytes (0: none) are cut into equal slices. */
void gw_cut_by_bytes(gw_schedule *schedule, size_t fuse_bytes, size_t slice_bytes);
/* As that without slices; but towards the first tensor a piece has at most half of the bytes that are left: what
 * backward produces last, and the next forward pass waits for, is small. */
void gw_cut_tapered(gw_schedule *schedule, size_t fuse_bytes);
/* Tensors [first, end) as one piece; those without elements have no part in it. */
void gw_cut_run(gw_schedule *schedule, int first, int end);
size_t gw_tensor_bytes(const gw_schedule *schedule, int tensor);

/* order.c: the next of the fixed order (as produced), if it can be started. */
int gw_order_produced(const gw_schedule *schedule);
/* The ready piece of lowest priority, if credit (bytes; 0: a single piece) allows. */
int gw_order_priority(const gw_schedule *schedule, size_t credit);

#define GW_PARAM_FUSE(bytes)                                                                                           \
    {                                                                                                                  \
        .name = "fuse", .kind = GW_PARAM_BYTES, .preset = (bytes), .lowest = 1, .highest = 1024.0 * 1024 * 1024,       \
        .about = "small tensors travel together up to this"                                                            \
    }
#define GW_PARAM_SLICE(bytes)                                                                                          \
    {                                                                                                                  \
        .name = "slice", .kind = GW_PARAM_BYTES, .preset = (bytes), .lowest = GW_SLICE_BYTES_MIN,                      \
        .highest = 1024.0 * 1024 * 1024, .about = "larger tensors are cut"                                             \
    }

#endif
