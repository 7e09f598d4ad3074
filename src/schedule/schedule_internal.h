/* schedule_internal.h - what schedule.c, bucket_cut.c and the policies share. */
#ifndef GW_SCHEDULE_INTERNAL_H
#define GW_SCHEDULE_INTERNAL_H

#include "schedule/forward_graph.h"

struct gw_schedule {
    const gw_policy *policy;
    gw_schedule_settings settings;
    gw_schedule_facts facts;
    gw_schedule_tensor *tensors;
    int tensor_count;
    gw_bucket *buckets; /* in the order in which backward completes them */
    int bucket_count, bucket_room;
    gw_tensor_range *ranges;
    int range_count, range_room;
    int *first_bucket, *last_bucket; /* of each tensor; -1: it has no elements */
    gw_forward_graph *graph;         /* NULL unless the policy needs it; with scratch of two entries for each tensor: */
    int *places;
    double *transfers;
    int cursor;          /* in-order policies: how many starts of this step have been made */
    uint64_t steps_over; /* backward passes that have ended */
    int in_flight;       /* buckets */
    size_t in_flight_bytes;
};

/* bucket_cut.c: from the last tensor to the first. Closes a bucket when the next tensor would take it over fuse_bytes;
 * cuts tensors over slice_bytes (0: none) into equal slices. */
void gw_cut_by_bytes(gw_schedule *schedule, size_t fuse_bytes, size_t slice_bytes);
/* The same without slices. But towards the first tensor a bucket has at most half of the bytes that are left: so the
 * buckets that backward produces last are small, and the next forward pass waits for these. */
void gw_cut_tapered(gw_schedule *schedule, size_t fuse_bytes);
/* The same with automatic sizes: an eighth of all bytes, at most fuse_bytes_max. And the first
 * bucket is small, and each has at most twice what the one before may have: so the wire has work soon. */
void gw_cut_growing(gw_schedule *schedule, size_t fuse_bytes_max);
/* Tensors [first, end) as one bucket, except for those without elements. */
void gw_cut_run(gw_schedule *schedule, int first, int end);
size_t gw_tensor_bytes(const gw_schedule *schedule, int tensor);
/* An automatic size: a part of the bytes of all tensors, between limits. */
size_t gw_share_of_all(const gw_schedule *schedule, size_t parts, size_t least, size_t most);

/* next_bucket.c: the next bucket in the fixed order (as produced), if it can be started. */
int gw_next_by_produced(const gw_schedule *schedule);
/* The ready bucket of the earliest step, of these the one of lowest priority, if credit (bytes; 0: a single bucket)
 * allows. A bucket of the next step must not overtake: another rank may hand its part of that bucket over only when it
 * has the results of this step. */
int gw_next_by_priority(const gw_schedule *schedule, size_t credit);

#define GW_FUSE_BYTES 25000000u /* as in DDP */

#define GW_PARAM_FUSE(automatic_size)                                                                                  \
    {                                                                                                                  \
        .name = "fuse", .kind = GW_PARAM_BYTES, .automatic = true, .lowest = 1, .highest = 1024.0 * 1024 * 1024,       \
        .about = "small tensors are fused up to this size; auto: " automatic_size                                      \
    }
#define GW_PARAM_SLICE(automatic_size)                                                                                 \
    {                                                                                                                  \
        .name = "slice", .kind = GW_PARAM_BYTES, .automatic = true, .lowest = GW_SLICE_BYTES_MIN,                      \
        .highest = 1024.0 * 1024 * 1024, .about = "larger tensors are cut; auto: " automatic_size                      \
    }

#endif
