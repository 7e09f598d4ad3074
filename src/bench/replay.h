/* replay.h - training steps of a recorded model on real buffers, with compute replaced by timers: a rank sleeps for as
 * long as each layer takes, so four ranks on two cores behave like four machines. This is one rank's part. */
#ifndef GW_BENCH_REPLAY_H
#define GW_BENCH_REPLAY_H

#include "base/clock.h"
#include "gradwire/reducer.h"
#include "profile/profile.h"

typedef struct gw_replay gw_replay;

/* Allocates one tensor for each layer that has parameters, of 1/shrink of its size. */
gw_status gw_replay_open(gw_replay **replay, gw_comm *comm, const gw_profile *profile, double shrink, gw_error *error);
void gw_replay_close(gw_replay *replay);           /* NULL is fine */
uint64_t gw_replay_bytes(const gw_replay *replay); /* of all tensors */

/* From now on compute takes `scale` times as long as recorded. */
void gw_replay_scale(gw_replay *replay, double scale);
double gw_replay_compute_us(const gw_replay *replay); /* forward and backward */
/* Time of one all-reduce of all gradients: the minimum of several, repeated until none is faster. A collective call;
 * *us is the same on all ranks. */
gw_status gw_replay_communication_us(gw_replay *replay, double *us, gw_error *error);

/* A lower bound of the step time for any schedule, if all gradients together take communication_us. It is the maximum
 * of compute, communication, and for every layer i a sum: the compute from the forward pass of layer i to the end of
 * its backward pass, plus the communication of layers 0 to i, which that compute cannot hide. */
double gw_replay_bound_us(const gw_replay *replay, double communication_us);

/* A strategy that is replayed. */
typedef struct gw_replay_strategy {
    gw_reducer *reducer;
    bool updates; /* the reducer runs the optimiser, as some synchronizations need: weights hold the result */
    bool tuned;   /* its first steps tune the sizes of its schedule */
} gw_replay_strategy;

/* Commits a reducer under a strategy, which is merged over the communicator's strategy. Several may exist; one runs at
 * a time. A collective call. */
gw_status gw_replay_commit(gw_replay *replay, const char *strategy, gw_replay_strategy *replayed, gw_error *error);

/* Runs `steps` steps. `ended` (one entry per step, or NULL) receives the end time of each backward pass. */
gw_status gw_replay_run(gw_replay *replay, const gw_replay_strategy *replayed, int steps, gw_time *ended,
                        gw_error *error);
/* One step on new gradients, then a flush; adds to *wrong the elements of this rank that are not the mean. */
gw_status gw_replay_check(gw_replay *replay, const gw_replay_strategy *replayed, uint64_t *wrong, gw_error *error);

#endif
