/* step_timing.h - layer times and all-reduce times, which a schedule may need before it cuts buckets.
 *
 * Rank 0 times its own calls over a few steps, and a few all-reduces at the start. Its result is sent to all ranks
 * between two steps, so that all cut the same buckets. The caller's thread only. */
#ifndef GW_REDUCER_STEP_TIMING_H
#define GW_REDUCER_STEP_TIMING_H

#include "base/clock.h"
#include "schedule/schedule.h"

#define GW_MEASURE_STEPS 5

typedef struct gw_step_timing {
    int count;      /* tensors */
    int steps;      /* measured so far; GW_MEASURE_STEPS: done */
    double *values; /* alpha_us, us_per_byte, forward_us of each tensor, backward_us of each tensor */
    gw_time last;   /* the previous call */
    int forward_of; /* the tensor whose layer computes its forward pass, -1: none */
} gw_step_timing;

gw_status gw_step_timing_open(gw_step_timing *timing, int count, gw_error *error);
void gw_step_timing_close(gw_step_timing *timing);
bool gw_step_timing_runs(const gw_step_timing *timing);

void gw_step_timing_wait(gw_step_timing *timing, int tensor, gw_time asked, gw_time given); /* gw_reducer_wait */
void gw_step_timing_ready(gw_step_timing *timing, int tensor, gw_time now);
void gw_step_timing_end(gw_step_timing *timing);

/* At commit: fits latency (alpha) and time per byte to all-reduces on this communicator. A collective call. */
gw_status gw_step_timing_allreduces(gw_step_timing *timing, gw_comm *comm);
/* Times layers again, from the next call on. */
void gw_step_timing_restart(gw_step_timing *timing);
/* Broadcasts the times of a rank: rank 0, or the one whose layers take longest. Collective calls. */
gw_status gw_step_timing_broadcast(gw_step_timing *timing, gw_comm *comm);
gw_status gw_step_timing_broadcast_slowest(gw_step_timing *timing, gw_comm *comm);
gw_schedule_facts gw_step_timing_facts(const gw_step_timing *timing);

#endif
