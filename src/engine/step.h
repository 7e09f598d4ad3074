/* step.h - what step.c (the calls of a step) and step_servers.c (ranks that come together over servers) share. */
#ifndef GW_ENGINE_STEP_H
#define GW_ENGINE_STEP_H

#include "engine/comm.h"
#include "engine/measure.h"
#include "engine/stepper.h"
#include "engine/tuning.h"

struct gw_step {
    gw_comm *comm;         /* the step's own, split from the caller's */
    gw_strategy strategy;
    char snapshots[512];   /* the directory of servers' snapshots; "": none */
    gw_stepper *stepper;
    gw_rider rider;        /* by which the core polls it */
    bool rides;            /* and it does */
    float *flat;           /* from gw_alloc; NULL: tensors lie well */
    gw_measure measure;    /* without values: the policy does not ask */
    gw_tuning tuning;
    int count;
    uint64_t wait_ns;
    gw_engine_counters before; /* of the engine, at commit */
    uint64_t dense_bytes;      /* of one step */
    uint64_t first;            /* number of the first step */
    uint64_t base;             /* that of the first of the job: pushes are counted from there */
    uint32_t life;             /* the round of the job in which it was committed */
    uint64_t steps;
    gw_time began;             /* while recording: the step under way; 0: no call of it yet */
};

/* Begins to be polled, and no longer. (L) of the step's node is held. */
void gw_step_ride(gw_step *step);
void gw_step_dismount(gw_step *step);

/* step_servers.c: what every rank says of itself; *who is the caller's to free. NULL: there are no servers. */
gw_status gw_step_attend(gw_step *step, const gw_stepper_config *config, gw_attendant **who, gw_error *error);
/* Collective, once the stepper has been opened: what servers know is where it is needed. */
gw_status gw_step_hand_over(gw_step *step, gw_error *error);

#endif
