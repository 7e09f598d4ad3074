/* measure.h - what a policy wants to know before it cuts: how long layers take, and what an exchange costs.
 *
 * Rank 0 times its own calls over a few steps, and a few all-reduces at the start; what it found is given to all ranks
 * between two steps, so that all cut alike. The caller's thread only. */
#ifndef GW_ENGINE_MEASURE_H
#define GW_ENGINE_MEASURE_H

#include "base/clock.h"
#include "schedule/schedule.h"

#define GW_MEASURE_STEPS 5

typedef struct gw_measure {
    int count;           /* tensors */
    int steps;           /* measured so far; GW_MEASURE_STEPS: known to all */
    double *values;      /* alpha_us, us_per_byte, forward_us of each tensor, backward_us of each tensor */
    gw_time last;        /* the call before */
    int forward_of;      /* the tensor whose forward compute runs, -1: none */
} gw_measure;

gw_status gw_measure_open(gw_measure *measure, int count, gw_error *error);
void gw_measure_close(gw_measure *measure);
bool gw_measure_runs(const gw_measure *measure);

void gw_measure_wait(gw_measure *measure, int tensor, gw_time asked, gw_time given); /* gw_step_wait */
void gw_measure_ready(gw_measure *measure, int tensor, gw_time now);
void gw_measure_end(gw_measure *measure);

/* At commit: fits alpha and beta to all-reduces on this communicator. A collective call. */
gw_status gw_measure_exchanges(gw_measure *measure, gw_comm *comm);
/* Rank 0's become everybody's. A collective call. */
gw_status gw_measure_share(gw_measure *measure, gw_comm *comm);
gw_schedule_facts gw_measure_facts(const gw_measure *measure);

#endif
