/* reducer_sim_internal.h - shared by reducer_sim.c (a rank's program, checks), reducer_sim_second.c (a second reducer)
 * and reducer_sim_fault.c (faults and recovery). */
#ifndef GW_SIM_REDUCER_SIM_INTERNAL_H
#define GW_SIM_REDUCER_SIM_INTERNAL_H

#include "base/rng.h"
#include "reducer/step_engine.h"
#include "sim/control_sim.h"
#include "sim/reducer_sim.h"
#include "sim/schedule_check.h"

#define FIRST_TEAM 1
#define TRAINING_DEADLINE (2 * GW_SECOND) /* in runs with a fault */
#define STEPS_AFTER 3                     /* of the survivors */
#define SECOND_TEAM 1000                  /* team id of the second reducer, counted from that of the first */
#define SECOND_FLOATS 3000                /* of its tensors */

/* WAIT: the forward pass waits for a layer. HAND_OVER: the gradient is handed over once the layer's last exchange is
 * settled. SECOND: the step has ended, and the second reducer makes one. SHRINK: a call has failed, and the survivors
 * agree on the members. RESUME: they wait for each other. OUT: the rank may not go on. */
typedef enum phase { WAIT, FORWARD, BACKWARD, HAND_OVER, SECOND, FLUSH, OVER, SHRINK, RESUME, OUT } phase;

typedef struct training_sim training_sim;

typedef struct second_reducer {
    gw_team *team;
    gw_step_engine *step_engine; /* NULL: there is none */
    gw_progress_callback callback;
    float gradients[SECOND_FLOATS];
    int step;         /* the next */
    bool handed_over; /* it has made a step in this team */
} second_reducer;

typedef struct training_rank {
    gw_control_sim_rank base; /* first */
    training_sim *sim;
    gw_team *team;
    bool in[GW_REDUCER_SIM_WORLD_MAX]; /* by rank: it is in the team */
    gw_step_engine *step_engine;
    gw_progress_callback callback;
    float *gradients, *weights, *flat;
    size_t at[GW_REDUCER_SIM_LAYERS_MAX]; /* offset of each layer in gradients and weights */
    uint8_t applied[GW_REDUCER_SIM_LAYERS_MAX][GW_REDUCER_SIM_STEPS_MAX];
    phase phase;
    bool waits;                  /* a call is blocked */
    int first, step, end, layer; /* steps: the first in this team, the current, the one after the last */
    int pass;                    /* micro-steps of the current step so far */
    second_reducer second;
    gw_time until; /* end of its compute */
    gw_rng rng;
    gw_schedule_check schedule_check;
    bool moved;                 /* it went on after a loss */
    bool failed;                /* the generation has failed, and so does every further call */
    gw_time shrink_until;       /* SHRINK: the deadline */
    uint32_t shrink_generation; /* SHRINK: the generation that has failed */
    char why[200];              /* OUT: the error */
} training_rank;

struct training_sim {
    gw_control_sim base; /* first */
    const gw_reducer_sim *training;
    training_rank ranks[GW_REDUCER_SIM_WORLD_MAX];
    gw_reducer_sim_outcome *outcome;
    bool exact;                           /* results are means, not merely the same on all ranks */
    bool fault_injected, second_injected; /* second: of KILL_TWO */
    /* Hash of the first rank's result, for the others to compare with; 0: none yet. */
    uint64_t hash[GW_REDUCER_SIM_LAYERS_MAX][GW_REDUCER_SIM_STEPS_MAX];
};

/* reducer_sim.c */
#define broken(sim, ...) gw_control_sim_broken(&(sim)->base, __VA_ARGS__)
uint64_t gw_reducer_sim_hash(const float *values, size_t count);
gw_status gw_reducer_sim_team(training_rank *self, uint32_t id, const bool *in, gw_error *error);
void gw_reducer_sim_begin(training_rank *self, phase next, gw_time duration);
void gw_reducer_sim_begin_step(training_rank *self);
/* Behaves like a call of the library: a new call returns a known failure at once; a waiting call first checks whether
 * its result has arrived. False: it still waits, or has failed. */
bool gw_reducer_sim_answered(training_rank *self, const gw_step_engine *step_engine,
                             bool (*holds)(const gw_step_engine *, int), int layer);

/* reducer_sim_second.c. They do nothing if there is no second reducer. settled, step: false while it waits. */
gw_status gw_reducer_sim_second_open(training_rank *self, uint32_t id, gw_error *error);
void gw_reducer_sim_second_close(training_rank *self);
bool gw_reducer_sim_second_settled(training_rank *self);
bool gw_reducer_sim_second_step(training_rank *self);
void gw_reducer_sim_second_move(training_rank *self, uint32_t id, gw_error *error);
void gw_reducer_sim_second_go_on(training_rank *self, training_rank *const *members, int count);

/* reducer_sim_fault.c */
void gw_reducer_sim_inject_fault(training_sim *sim); /* if it is due */
void gw_reducer_sim_call_failed(training_rank *self);
bool gw_reducer_sim_shrink(training_rank *self); /* false: it still waits */
bool gw_reducer_sim_resume(training_rank *self); /* false: it still waits */
bool gw_reducer_sim_averages_weights(const training_sim *sim);

#endif
