/* replay.h - training steps of a recorded model on real buffers, with compute replaced by timers: a rank sleeps for as
 * long as each layer takes, so that four ranks on two cores behave like four machines. One rank's part. */
#ifndef GW_BENCH_REPLAY_H
#define GW_BENCH_REPLAY_H

#include "base/clock.h"
#include "gradwire.h"
#include "model/profile.h"

typedef struct gw_replay gw_replay;

/* Tensors and their memory: one tensor for each layer that has parameters, a shrink-th of its size. */
gw_status gw_replay_open(gw_replay **replay, gw_comm *comm, const gw_profile *profile, double shrink, gw_error *error);
void gw_replay_close(gw_replay *replay); /* NULL is fine */
uint64_t gw_replay_bytes(const gw_replay *replay); /* of all tensors */

/* Compute takes `scale` times as long as recorded. */
void gw_replay_scale(gw_replay *replay, double scale);
double gw_replay_compute_us(const gw_replay *replay); /* forward and backward */
/* One all-reduce of everything at once: the least of as many as it takes until none is faster. A collective call; *us
 * is the same on all ranks. */
gw_status gw_replay_communication_us(gw_replay *replay, double *us, gw_error *error);

/* No schedule can be faster, where all of it together takes so long on the wire: the larger of compute, communication,
 * and, for every layer i, the compute after its backward's end and before its forward, and the communication of layers
 * 0 to i, which no other can hide. */
double gw_replay_bound_us(const gw_replay *replay, double communication_us);

/* A strategy that is replayed. */
typedef struct gw_replayed {
    gw_step *step;
    bool updates; /* it runs the optimiser, as some synchronies want: weights hold the result, not gradients */
    bool tuned;   /* its first steps look for the sizes of its schedule */
} gw_replayed;

/* Under a strategy (laid over the communicator's). Several may be there, one runs at a time. A collective call. */
gw_status gw_replay_commit(gw_replay *replay, const char *strategy, gw_replayed *replayed, gw_error *error);

/* So many steps one after the other; ended (steps entries, or NULL) gets when the backward pass of each was over. */
gw_status gw_replay_run(gw_replay *replay, const gw_replayed *replayed, int steps, gw_time *ended, gw_error *error);
/* One step on fresh gradients, flushed; *wrong: elements on this rank that are not the mean are added. */
gw_status gw_replay_check(gw_replay *replay, const gw_replayed *replayed, uint64_t *wrong, gw_error *error);

#endif
