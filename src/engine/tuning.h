/* tuning.h - a schedule's sizes looked for while training runs (schedule/tune.h says how).
 *
 * A trial is a few steps under some sizes. Between two steps all ranks meet: their times are averaged, rank 0 decides,
 * and all cut the same new pieces. What is tuned are the sizes in bytes among the schedule's parameters; a schedule
 * without any is left as it is, and so is a synchrony whose workers do not make every step together. The caller's
 * thread only. */
#ifndef GW_ENGINE_TUNING_H
#define GW_ENGINE_TUNING_H

#include "base/clock.h"
#include "gradwire.h"
#include "schedule/tune.h"
#include "strategy/strategy.h"

#define GW_TUNE_VARIABLE "GRADWIRE_TUNE"
#define GW_TUNING_STEPS 4 /* timed in a trial; one more comes before, which fills what the meeting has emptied */
#define GW_TUNING_WARM_UP 4

typedef struct gw_tuning {
    int axes;                  /* sizes that are tuned; 0: none, or no more */
    int param[GW_TUNE_AXES];   /* of the technique */
    int step;                  /* of the trial; below 0: before the first */
    int trials;                /* over */
    double us[GW_TUNING_STEPS];
    gw_time last;              /* the end of the step before; 0: none */
    gw_tuner *tuner;           /* rank 0's */
    const char *path;          /* rank 0's: where it is kept; NULL: nowhere. Owned. */
    char model[80];            /* what the file is of */
} gw_tuning;

/* What is tuned: tensors, and bytes of the whole and of the largest. */
typedef struct gw_tuned_model {
    int tensors;
    uint64_t bytes, largest;
} gw_tuned_model;

/* how: "off", "on", or a file's name; NULL: as GRADWIRE_TUNE says, else off. What such a file has for this model is put
 * into the strategy, and nothing is tuned. A collective call; on failure *tuning can be closed. */
gw_status gw_tuning_open(gw_tuning *tuning, const char *how, gw_comm *comm, gw_strategy *strategy,
                         const gw_tuned_model *model, gw_error *error);
void gw_tuning_close(gw_tuning *tuning);
bool gw_tuning_runs(const gw_tuning *tuning);

/* A step has ended. True when the trial is over: gw_tuning_meet is to be called. */
bool gw_tuning_step(gw_tuning *tuning, gw_time now);
/* What is tried next (or kept, from now on) is put into the strategy. A collective call. */
gw_status gw_tuning_meet(gw_tuning *tuning, gw_comm *comm, gw_strategy *strategy);

#endif
