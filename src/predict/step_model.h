/* step_model.h - training steps of all ranks on the virtual clock: ranks compute layers, hand gradients to the
 * production schedule, exchange buckets, and the next forward pass waits for the results that it needs.
 *
 * Rank 0's schedule decides for all; every rank starts the buckets in that order, each as soon as it has the gradients.
 * If the policy reorders, rank 0 sends the order in messages, which queue behind those of gradients as in
 * production. With servers every rank follows its own schedule. */
#ifndef GW_PREDICT_STEP_MODEL_H
#define GW_PREDICT_STEP_MODEL_H

#include "base/clock.h"
#include "predict/dispatch_model.h"
#include "sync/sync.h"

#define GW_STEP_MODEL_FIRST                                                                                            \
    (UINT64_C(1) << 40) /* the number of the first step, as synchronization sees it: after any warm-up */

typedef struct gw_step_model_config {
    const gw_profile *profile;
    const gw_dispatch_tensors *tensors;
    gw_schedule *const *schedules; /* rank 0's; with servers one of each rank. Borrowed, and changed by
                                      gw_step_model_run; initially no bucket is ready */
    bool servers;
    const gw_dispatch *dispatches; /* of each bucket */
    const gw_team_model *teams;
    const gw_sync *sync;
    const double *sync_values;
    double compute;         /* factor on the profile's times */
    double interference;    /* seconds of computing that a byte costs whose exchange begins beside it */
    double update;          /* seconds that the optimiser takes for a byte of parameters */
    double decide;          /* seconds before the order of a policy that reorders is sent */
    int at_once;            /* buckets in flight at the same time; 0: as many as the schedule starts */
    int steps, warm;        /* all steps, and those of them before the measurement */
    gw_plan_sim_config run; /* gw_step_model_run sets its callbacks and ctx */
    /* Called after each step of rank 0; may be NULL. */
    void (*progress)(void *ctx, int step, int steps);
    void *ctx;
    gw_time until; /* give up then; 0: never */
} gw_step_model_config;

typedef struct gw_step_model_result {
    double step_seconds;    /* between ends of backward passes, mean of the measured steps; with servers, whose
                               workers may be of different speed, also over the workers */
    gw_time_breakdown path; /* critical path of such a step */
    double bytes;           /* sent by one rank in a step, mean over ranks and steps */
    double messages;        /* the same */
    uint64_t simulated;     /* messages */
} gw_step_model_result;

gw_status gw_step_model_run(const gw_step_model_config *config, gw_step_model_result *result, gw_error *error);

#endif
