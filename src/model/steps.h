/* steps.h - training steps of all ranks on the virtual clock: layers are computed, gradients handed to the production
 * schedule, pieces carried, and the next forward pass waits for what it needs.
 *
 * Rank 0's schedule decides for all; every rank starts a piece in that order as soon as it has the gradients. Where the
 * policy reorders, the others have to be told, by messages that wait behind those of gradients as in production. */
#ifndef GW_MODEL_STEPS_H
#define GW_MODEL_STEPS_H

#include "model/carry.h"
#include "sync/sync.h"

#define GW_STEPS_FIRST (UINT64_C(1) << 40) /* the number of the first step, as synchrony sees it: after any warm-up */

typedef struct gw_steps_config {
    const gw_profile *profile;
    const gw_carry_tensors *tensors;
    gw_schedule *schedule;   /* nothing in it is ready; the run's while it lasts */
    const gw_carry *carries; /* of each piece */
    const gw_sync *sync;
    const double *sync_values;
    double compute; /* what the profile's times are multiplied by */
    int at_once;    /* pieces under way together; 0: as many as the schedule starts */
    int steps, warm; /* how many, and how many of these before what is measured */
    gw_run_config run; /* done and ctx are set here */
    /* Called now and then with the steps that rank 0 has ended; NULL: nobody. */
    void (*progress)(void *ctx, int step, int steps);
    void *ctx;
} gw_steps_config;

typedef struct gw_steps_result {
    double step_seconds; /* from one end of a backward pass to the next, the mean of the measured steps */
    gw_path path;        /* of such a step */
    double bytes;        /* sent by one rank in a step, the mean over ranks and steps */
    double messages;     /* the same */
    uint64_t simulated;  /* messages */
} gw_steps_result;

gw_status gw_steps_run(const gw_steps_config *config, gw_steps_result *result, gw_error *error);

#endif
