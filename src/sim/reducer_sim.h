/* reducer_sim.h - simulates N ranks that train on one virtual clock. Each rank runs a program of forward and backward
 * timers, layer by layer, and hands its gradients to a step engine. Step engine, schedule, synchronization, codecs and
 * engine are the production code; only compute, links and the clock are simulated.
 *
 * A rank may lack the gradient of a layer in a step, make micro-steps whose gradients stay local, and have a second
 * reducer whose steps are in flight beside those of the first.
 *
 * Checks during the run: every result is the mean of that step's gradients (or the same on all ranks, if a codec is
 * lossy); every gradient is applied exactly once; credit is never exceeded; under a policy that orders by urgency no
 * bucket starts while a more urgent one is ready; a flush leaves nothing in flight.
 *
 * A rank may be killed (a proved loss), cut off (it is unreachable) or abort. Then no rank updates weights after the
 * failure; the ranks that may go on hold the same bits after they resume (reducer_sim_fault.c), and make more steps. */
#ifndef GW_SIM_REDUCER_SIM_H
#define GW_SIM_REDUCER_SIM_H

#include "base/clock.h"
#include "base/status.h"
#include "reducer/step_engine.h"
#include "sim/fault_sim.h"
#include "strategy/strategy.h"

#define GW_REDUCER_SIM_LAYERS_MAX 16
#define GW_REDUCER_SIM_WORLD_MAX 24

typedef struct gw_reducer_sim_layer {
    size_t count;              /* floats */
    gw_time forward, backward; /* ns of compute */
    size_t rows;               /* of it as a matrix; 0: it is a vector */
} gw_reducer_sim_layer;

typedef struct gw_reducer_sim {
    uint64_t seed;
    int world, layers, steps;
    gw_reducer_sim_layer layer[GW_REDUCER_SIM_LAYERS_MAX];
    int host_of[GW_REDUCER_SIM_WORLD_MAX];
    int rack_of[GW_REDUCER_SIM_WORLD_MAX]; /* all 0: no racks */
    gw_time latency, jitter;
    double bytes_per_second;
    double unevenness; /* each timer is longer by a random factor, at most 1 + unevenness */
    bool scattered;    /* gradients are not contiguous in memory */
    bool updates;      /* the reducer runs the optimiser */
    double clip;       /* as in gw_reducer_options; the checks of values need a limit that is never reached, or 0 */
    gw_strategy strategy;
    size_t payload_bytes_max; /* as in gw_step_engine_config */
    int absence;              /* of 8 gradients, so many are absent on a rank */
    int micro_steps;          /* at most so many come before a step; 0: none */
    bool two;                 /* there is a second reducer */
    gw_strategy second_strategy;
    gw_sim_fault fault; /* NONE, KILL, KILL_TWO, PARTITION or ABORT */
    int victim, second; /* ranks with the fault; KILL_TWO: both; PARTITION: ranks from victim on are the other side */
    gw_time fault_at, second_at; /* second_at: after fault_at */
    /* The gradient of a layer on a rank, at these weights. NULL: small whole numbers that do not depend on them. */
    void (*gradient)(int rank, int layer, int step, const float *weights, size_t count, float *gradient);
    /* Called after the last flush for every rank and layer; may be NULL. */
    void (*ended)(void *ctx, int rank, int layer, const float *weights, size_t count);
    /* Called before that for every rank, with what it keeps from step to step; may be NULL. */
    void (*kept)(void *ctx, int rank, const gw_step_engine *step_engine);
    void *ctx;
} gw_reducer_sim;

typedef struct gw_reducer_sim_outcome {
    bool ok;        /* every check passed */
    char text[400]; /* the first that failed, or "" */
    uint64_t events;
    uint64_t sent[GW_REDUCER_SIM_WORLD_MAX][GW_REDUCER_SIM_WORLD_MAX]; /* bytes of payloads, from rank to rank */
    int survivors;     /* ranks that went on after a fault and reached the end */
    gw_time began[64]; /* when rank 0 began each step, and when its flush ended: steps + 1 entries */
} gw_reducer_sim_outcome;

#define GW_REDUCER_SIM_STEPS_MAX 63
#define GW_REDUCER_SIM_RATE 0.5f /* of the optimiser: weights -= rate * gradient */

/* Derives model, ranks, links, codec and synchronization from a seed, for a policy of the strategy line. Pure. */
gw_status gw_reducer_sim_make(gw_reducer_sim *training, uint64_t seed, const char *policy, gw_error *error);
/* Adds a fault derived from the seed, to a run that takes `duration` without one. Pure. */
void gw_reducer_sim_break(gw_reducer_sim *training, uint64_t seed, gw_time duration);
gw_status gw_reducer_sim_run(const gw_reducer_sim *training, gw_reducer_sim_outcome *outcome, gw_error *error);

#endif
