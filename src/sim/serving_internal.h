/* serving_internal.h - what serving.c (processes and their programs), serving_meet.c (coming together anew) and
 * serving_check.c (promises) share. */
#ifndef GW_SIM_SERVING_INTERNAL_H
#define GW_SIM_SERVING_INTERNAL_H

#include "base/rng.h"
#include "engine/stepper.h"
#include "engine/stepper_ps.h"
#include "sim/serving.h"
#include "transport/sim.h"

#define GW_SERVING_DEADLINE (10 * GW_SECOND)

/* PULL: the forward pass waits for a tensor; HAND: gradients are there, and handed over one by one; MEET: all steps are
 * made, and it waits for the others. */
typedef enum gw_serving_phase {
    GW_SERVING_PULL,
    GW_SERVING_COMPUTE,
    GW_SERVING_HAND,
    GW_SERVING_FLUSH,
    GW_SERVING_MEET,
    GW_SERVING_LEAVE,
    GW_SERVING_OVER
} gw_serving_phase;

typedef struct gw_serving_job gw_serving_job;

/* What one process has pushed, and where the counting began. */
typedef struct gw_serving_life {
    int begun[GW_SERVING_TENSORS_MAX], answered[GW_SERVING_TENSORS_MAX]; /* by tensor */
    uint32_t begun_in[GW_SERVING_TENSORS_MAX]; /* the round of the job in which the last began */
    float *before; /* of each weight: what it counted when this life began; NULL: there was none */
} gw_serving_life;

typedef struct gw_serving_process {
    gw_serving_job *job;
    int seat;
    bool lives, fresh;   /* fresh: it has not come together with the others yet */
    uint32_t born;       /* the round of the job in which it was started */
    bool failed;         /* its core has told it that somebody is lost */
    gw_core *core;
    gw_team *team;
    gw_stepper *stepper; /* NULL: it has committed none yet */
    gw_rider rider;
    float *gradients, *weights, *flat;
    gw_serving_phase phase;
    int tensor;
    uint64_t first;      /* the number of its first step */
    int made;            /* steps that it has ended in this life */
    gw_time until;       /* it computes */
    gw_rng rng;
    gw_serving_life now, past; /* past: of the process before it in this seat, until it has been looked at */
} gw_serving_process;

struct gw_serving_job {
    const gw_serving *serving;
    gw_serving_outcome *outcome;
    gw_rng rng;
    gw_sim_net *net;
    int round;           /* how often all have come together anew */
    gw_serving_process seats[GW_SERVING_SEATS_MAX];
    int world, seat_of[GW_SERVING_SEATS_MAX]; /* of each rank of this round */
    size_t at[GW_SERVING_TENSORS_MAX], total; /* of each tensor in gradients and weights; floats */
    bool counts;         /* weights count pushes exactly */
    bool dying;          /* somebody has been killed in this round */
    int patience;        /* events until the next is */
    bool meeting;        /* they are coming together just now */
    int budget;          /* steps of that until somebody else is lost; -1: nobody is */
};

static inline int gw_serving_seats(const gw_serving *s) { return s->workers + s->apart; }
static inline bool gw_serving_works(const gw_serving_process *p) { return p->seat < p->job->serving->workers; }
static inline bool gw_serving_keeps(const gw_serving_job *job) { /* servers have the weights */
    return gw_sync_of(job->serving->strategy.axes[GW_AXIS_SYNC].technique)->rule != NULL;
}

/* serving.c */
/* A promise did not hold: the first such is the outcome. */
void gw_serving_broken(gw_serving_job *job, const char *format, ...) __attribute__((format(printf, 2, 3)));
gw_status gw_serving_start_process(gw_serving_job *job, int seat, gw_error *error);
void gw_serving_kill_process(gw_serving_process *process); /* and all that it knew; of zeros is fine */
gw_status gw_serving_connect(gw_serving_process *process, int rank, gw_error *error);
void gw_serving_disconnect(gw_serving_process *process); /* of what has failed, or where nothing is under way */
gw_status gw_serving_commit(gw_serving_process *process, const gw_attendant *who, gw_error *error);
void gw_serving_carry_on(gw_serving_process *process);

/* serving_meet.c: all that live come together, those too who have just been started. */
gw_status gw_serving_meet(gw_serving_job *job, gw_error *error);
/* Kills somebody whose loss can be borne, or nobody. */
void gw_serving_strike(gw_serving_job *job);

/* serving_check.c */
float gw_serving_gradient(const gw_serving_job *job, int seat, size_t element);
void gw_serving_check_pull(gw_serving_process *process, int tensor); /* its weights have just come */
void gw_serving_check_end(gw_serving_job *job);
/* All have come together, and servers know what they will go on with: looks at those who have died since the last time,
 * and counts anew for those who have just been started. */
void gw_serving_check_lives(gw_serving_job *job);

#endif
