/* training_internal.h - what training.c (a rank's program, checks) and training_loss.c (what happens after a loss)
 * share. */
#ifndef GW_SIM_TRAINING_INTERNAL_H
#define GW_SIM_TRAINING_INTERNAL_H

#include "base/rng.h"
#include "engine/stepper.h"
#include "sim/training.h"
#include "sim/training_watch.h"
#include "transport/sim.h"

#define FIRST_TEAM 1
#define TRAINING_DEADLINE (2 * GW_SECOND) /* where there is a fault */
#define STEPS_AFTER 3                     /* that survivors make */

/* NEED: the forward pass waits for a layer; HAND: a gradient is there, and handed over once its last is settled. ASK:
 * a call has failed, and the survivors agree on who they are; MEET: they wait for each other; OUT: it may not go on. */
typedef enum phase { NEED, FORWARD, BACKWARD, HAND, FLUSH, OVER, ASK, MEET, OUT } phase;

typedef struct school school;

typedef struct trainee {
    school *school;
    int rank;
    gw_core *core;
    gw_team *team;
    bool in[GW_TRAINING_WORLD_MAX]; /* who is in the team */
    gw_stepper *stepper;
    gw_rider rider;
    float *gradients, *weights, *flat;
    size_t at[GW_TRAINING_LAYERS_MAX]; /* of each layer in gradients and weights */
    uint8_t applied[GW_TRAINING_LAYERS_MAX][GW_TRAINING_STEPS_MAX];
    phase phase;
    bool waits;                        /* a call is under way that has not been answered at once */
    int first, step, end, layer;       /* steps: the first in this team, the present, the one after the last */
    gw_time until;                     /* it computes */
    gw_rng rng;
    gw_watch watch;
    bool moved;                        /* it went on after a loss */
    bool failed;                       /* the generation is over, which calls tell from then on */
    gw_time answer_by;                 /* ASK: the deadline */
    uint32_t asked_in;                 /* ASK: the generation that is over */
    char why[200];                     /* OUT */
} trainee;

struct school {
    const gw_training *training;
    gw_sim_net *net;
    trainee trainees[GW_TRAINING_WORLD_MAX];
    gw_training_outcome *outcome;
    bool exact;                        /* results are means, not merely the same on all ranks */
    bool struck, struck_again;         /* the fault has happened, and the second of KILL_TWO */
    /* What the first rank to have a result got, for the others to compare with. */
    uint64_t hash[GW_TRAINING_LAYERS_MAX][GW_TRAINING_STEPS_MAX];
};

/* training.c */
void gw_school_broken(school *school, const char *format, ...) __attribute__((format(printf, 2, 3)));
uint64_t gw_school_hash(const float *values, size_t count);
gw_status gw_school_team(trainee *self, uint32_t id, const bool *in, gw_error *error);
void gw_school_begin(trainee *self, phase next, gw_time duration);

/* training_loss.c */
void gw_school_strike(school *school);         /* the fault, if it is time */
void gw_school_lost(trainee *self);            /* a call has failed */
bool gw_school_ask(trainee *self);             /* true: it goes on */
bool gw_school_meet(trainee *self);
bool gw_school_averages_weights(const school *school);

#endif
