/* tuning.h - tunes a schedule's sizes while training runs (the search is schedule/tune.h).
 *
 * A trial is a few steps with some sizes. After it the ranks average their times, rank 0 decides, and all cut the same
 * new buckets. Only parameters that are sizes in bytes are tuned. Nothing is tuned if the schedule has none, or if the
 * synchronization does not exchange with all workers in every step. The caller's thread only. */
#ifndef GW_REDUCER_TUNING_H
#define GW_REDUCER_TUNING_H

#include "base/clock.h"
#include "gradwire.h"
#include "schedule/tune.h"
#include "strategy/strategy.h"

#define GW_TUNE_VARIABLE "GRADWIRE_TUNE"
#define GW_TUNING_STEPS 4   /* timed steps of a trial; one untimed step comes before them, after a flush */
#define GW_TUNING_WARM_UP 4 /* steps before the first trial */

typedef struct gw_tuning {
    int axes;                   /* number of tuned sizes; 0: nothing is tuned, or tuning is over */
    int param[GW_TUNE_AXES];    /* of each axis: the schedule's parameter */
    int step;                   /* of the trial; below 0: before the first trial */
    int trials;                 /* that have ended */
    double us[GW_TUNING_STEPS]; /* of the trial's steps */
    gw_time last;               /* the end of the previous step; 0: none */
    gw_tuner *tuner;            /* rank 0's */
    const char *path;           /* rank 0's: the file for the result; NULL: none. Owned. */
    char model[80];             /* ranks, tensors and bytes: the file is only valid for these */
} gw_tuning;

/* The model: number of tensors, bytes of all and of the largest. */
typedef struct gw_tuned_model {
    int tensors;
    uint64_t bytes, largest;
} gw_tuned_model;

/* how: "off", "on", or a file's name; NULL: GRADWIRE_TUNE, else off. If the file has sizes for this model they are put
 * into the strategy, and nothing is tuned. A collective call; on failure *tuning can be closed. */
gw_status gw_tuning_open(gw_tuning *tuning, const char *how, gw_comm *comm, gw_strategy *strategy,
                         const gw_tuned_model *model, gw_error *error);
void gw_tuning_close(gw_tuning *tuning);
bool gw_tuning_runs(const gw_tuning *tuning);

/* A step has ended. True: the trial is over, call gw_tuning_end_trial. */
bool gw_tuning_step(gw_tuning *tuning, gw_time now);
/* Puts the sizes of the next trial, or the final ones, into the strategy. A collective call. */
gw_status gw_tuning_end_trial(gw_tuning *tuning, gw_comm *comm, gw_strategy *strategy);

#endif
