/* training.h - N ranks that train on one virtual clock: each runs a program of forward and backward timers, layer by
 * layer, and hands its gradients to a stepper. Stepper, schedule, synchrony, codecs and engine are the production
 * code; only compute, links and the clock are simulated.
 *
 * While it runs, promises are checked: every result is the mean of that step's gradients (or the same on all ranks,
 * where a codec loses something), every gradient is applied exactly once, credit is never exceeded, no piece is
 * started while a more urgent one is ready under a policy that orders by urgency, and nothing is left behind by a
 * flush.
 *
 * A rank may be killed (a proved loss), cut off (it is unreachable) or abort: then nothing is updated after the
 * failure, those that may go on hold the same bits once they have met (training_loss.c), and make more steps. */
#ifndef GW_SIM_TRAINING_H
#define GW_SIM_TRAINING_H

#include "base/clock.h"
#include "base/status.h"
#include "sim/world.h"
#include "strategy/strategy.h"

#define GW_TRAINING_LAYERS_MAX 16
#define GW_TRAINING_WORLD_MAX 9

typedef struct gw_training_layer {
    size_t count;              /* floats */
    gw_time forward, backward; /* ns of compute */
} gw_training_layer;

typedef struct gw_training {
    uint64_t seed;
    int world, layers, steps;
    gw_training_layer layer[GW_TRAINING_LAYERS_MAX];
    int host_of[GW_TRAINING_WORLD_MAX];
    gw_time latency, jitter;
    double bytes_per_second;
    double unevenness; /* each timer takes up to so many times longer, at random */
    bool scattered;    /* gradients lie apart in memory */
    bool updates;      /* the step runs the optimiser */
    gw_strategy strategy;
    gw_sim_fault fault; /* NONE, KILL, KILL_TWO, PARTITION or ABORT */
    int victim, second; /* whom it strikes; KILL_TWO: both; PARTITION: ranks from victim on are the other side */
    gw_time fault_at, second_at;
    /* The gradient of a layer on a rank, at these weights. NULL: small whole numbers that do not depend on them. */
    void (*gradient)(int rank, int layer, int step, const float *weights, size_t count, float *gradient);
    /* After the last flush, of every rank and layer; may be NULL. */
    void (*ended)(void *ctx, int rank, int layer, const float *weights, size_t count);
    void *ctx;
} gw_training;

typedef struct gw_training_outcome {
    bool ok;         /* every promise held */
    char text[400];  /* what did not, or "" */
    uint64_t events;
    int survivors;     /* that went on after a fault, and came to the end */
    gw_time began[64]; /* when rank 0 began each step, and when it had flushed: steps + 1 entries */
} gw_training_outcome;

#define GW_TRAINING_STEPS_MAX 63
#define GW_TRAINING_RATE 0.5f /* of the optimiser: weights -= rate * gradient */

/* What a seed decides under a policy of the strategy line: model, world, links, codec, synchrony. Pure. */
gw_status gw_training_make(gw_training *training, uint64_t seed, const char *policy, gw_error *error);
/* Adds a fault that the seed decides, in a run that takes so long without one. Pure. */
void gw_training_break(gw_training *training, uint64_t seed, gw_time duration);
gw_status gw_training_run(const gw_training *training, gw_training_outcome *outcome, gw_error *error);

#endif
