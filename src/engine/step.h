/* step.h - what step.c (the calls of a step), step_commit.c (how one begins), step_servers.c (ranks that come together
 * over servers) and serve.c (processes that only serve) share. */
#ifndef GW_ENGINE_STEP_H
#define GW_ENGINE_STEP_H

#include "engine/comm.h"
#include "engine/measure.h"
#include "engine/step_table.h"
#include "engine/stepper.h"
#include "engine/tuning.h"
#include "strategy/combine.h"

struct gw_step {
    bool fresh;            /* it has not met others yet: what members share is to be had from them */
    gw_comm *comm;         /* the step's own, split from the caller's; with server processes of all processes */
    int workers;           /* ranks of comm that make steps: the first */
    bool serves_only;      /* this process makes none */
    gw_step_table table;   /* what server processes are told of it; without bytes: there are none */
    uint32_t number;       /* by which they know it */
    gw_strategy asked;     /* as it was committed */
    gw_strategy strategy;  /* with what was tuned */
    gw_step_facts facts;   /* by which combinations are checked */
    gw_tuned_model model;
    char snapshots[512];   /* the directory of servers' snapshots; "": none */
    gw_stepper *stepper;
    gw_rider rider;        /* by which the core polls it */
    bool rides;            /* and it does */
    float *flat;           /* from gw_alloc of comm; NULL: tensors lie well */
    size_t flat_bytes;
    gw_measure measure;    /* without values: the policy does not ask */
    gw_tuning tuning;
    int count;
    uint64_t wait_ns;
    gw_engine_counters before; /* of the engine, when the step began to use it */
    gw_engine_counters earlier; /* what it sent over communicators that it had before */
    uint64_t dense_bytes;      /* of one step */
    uint64_t first;            /* number of the first step */
    uint64_t next;             /* number of the step under way, or of the next */
    char *tune;                /* of the options, to tune again among other ranks. Owned; may be NULL */
    uint64_t base;             /* that of the first of the job: pushes are counted from there */
    uint32_t life;             /* the round of the job in which it was committed */
    uint64_t steps;
    gw_time began;             /* while recording: the step under way; 0: no call of it yet */
};

/* step_commit.c. Begins to be polled, and no longer. (L) of the step's node is held. */
void gw_step_ride(gw_step *step);
void gw_step_dismount(gw_step *step);
void gw_step_describe(const gw_step *step); /* to the log */
/* Collective: whether all ranks of comm could do what this one could or not. Whoever could not keeps his own reason,
 * the others are told who and why. */
gw_status gw_step_agree(gw_comm *comm, gw_status mine, gw_error *error);
/* A server process's part in a commit; everyone: the communicator of all processes. so_far: what came of the table. */
gw_status gw_step_commit_served(gw_step **step, gw_comm *everyone, const gw_step_request *request, gw_status so_far,
                                gw_error *error);

/* Of the step's communicator: memory that what travels is packed into (flat_bytes), and ids of the stepper's teams. */
gw_status gw_step_take_memory(gw_step *step, gw_stepper_config *config, gw_error *error);
void gw_step_take_ids(gw_step *step, gw_stepper_config *config); /* (L) is held */
/* Collective, around what ranks do to open or move the stepper: sizes are looked for, times are measured. */
gw_status gw_step_begin_tuning(gw_step *step, gw_comm *comm, gw_error *error);
gw_status gw_step_begin_measuring(gw_step *step, gw_error *error);
void gw_step_set_out(gw_step *step); /* polled from now on */

/* step_move.c: what ranks that have the step do to go on over `mine`, as others commit it. */
gw_status gw_step_join_moved(gw_step *step, gw_comm *mine, gw_error *error);

/* step_catch_up.c. Collective, without servers: every tensor stands at the same step on all ranks, with the same
 * weights and optimiser's arrays where the step updates; the next step has the same number. */
gw_status gw_step_catch_up(gw_step *step, gw_error *error);

/* step_servers.c. The status of a public call, which has told its error to this thread. */
gw_status gw_step_heard(gw_status status, gw_error *error);
/* What every rank says of itself; *who is the caller's to free. NULL: there are no servers. */
gw_status gw_step_attend(gw_step *step, const gw_stepper_config *config, gw_attendant **who, gw_error *error);
/* Collective, once the stepper has been opened: what servers know is where it is needed. */
gw_status gw_step_hand_over(gw_step *step, gw_error *error);
/* Collective: a communicator of the step's own among those who take part in it; server processes are called. */
gw_status gw_step_meet(gw_step *step, gw_comm *comm, gw_comm **mine, gw_error *error);
/* A server process's part in gw_step_move. */
gw_status gw_step_move_served(gw_step *step, gw_comm *everyone, gw_error *error);

/* step.c: all ranks have left it. */
bool gw_step_over(const gw_step *step);
/* What all workers did at the servers, n entries; collective among all who take part in the step. */
gw_status gw_step_share_times(gw_step *step, gw_step_worker *workers, gw_error *error);

#endif
