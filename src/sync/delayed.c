/* delayed.c - OD-SGD (Xu et al. 2020): after a synchronous warm-up a worker sends its gradient, updates a local copy of
 * the weights with it at once and computes the next step on that copy. The weights that all ranks share (the anchor
 * here) replace the copy one step later. A step takes the longer of compute and communication, not their sum.
 *
 * The shared weights get the mean of the gradients as they are. The local update has an optimiser and a rate of its
 * own: sgd, sgd with momentum, or DC-ASGD (Zheng et al. 2017), which the authors recommend. Its gradient was computed
 * on the local copy w and is applied to the anchor a: g + lambda * g * g * (a - w) makes up for the difference. */
#include "sync/sync.h"

#include <string.h>

enum { WARMUP, LOCAL, RATE, LAMBDA, MOMENTUM };
enum { SGD, WITH_MOMENTUM, DCASGD };

#define LAMBDA_PRESET 0.04 /* that of MXNet's DCASGD, which the authors use */
#define MOMENTUM_PRESET 0.9

static bool delays(const double *values, uint64_t step) { return (double)step >= values[WARMUP]; }

/* The shared weights get the mean as in the warm-up; the local update has no mean, only this rank's gradient. */
static unsigned norms(const double *values, uint64_t step) {
    return delays(values, step) ? GW_NORM_OWN | GW_NORM_MEAN : GW_NORM_MEAN;
}

static bool keeps_momentum(const double *values) { return (int)values[LOCAL] == WITH_MOMENTUM; }

static bool differs(double value, double preset) { return value < preset || value > preset; }

static const char *refuses(const double *values) {
    if (differs(values[LAMBDA], LAMBDA_PRESET) && (int)values[LOCAL] != DCASGD) return "lambda is that of local=dcasgd";
    if (differs(values[MOMENTUM], MOMENTUM_PRESET) && (int)values[LOCAL] != WITH_MOMENTUM)
        return "momentum is that of local=momentum";
    return NULL;
}

/* Turns the gradient, of which a copy travels, into the direction of the local update. */
static void turn(const double *values, gw_sync_tensor *t) {
    float rate = (float)values[RATE], lambda = (float)values[LAMBDA], mu = (float)values[MOMENTUM];
    float *g = t->gradient, clip = (float)t->scale;
    for (size_t i = 0; clip < 1 && i < t->count; i++) g[i] *= clip;
    t->scale = 1; /* the gradient has it now, since dcasgd uses its square */
    for (size_t i = 0; (int)values[LOCAL] == DCASGD && i < t->count; i++)
        g[i] += lambda * g[i] * g[i] * (t->anchor[i] - t->weights[i]);
    for (size_t i = 0; keeps_momentum(values) && i < t->count; i++) g[i] = t->momentum[i] = mu * t->momentum[i] + g[i];
    for (size_t i = 0; differs(values[RATE], 1) && i < t->count; i++) g[i] *= rate;
}

static void leave(const double *values, uint64_t step, gw_sync_tensor *t) {
    size_t bytes = t->count * sizeof(float);
    if (!bytes) return; /* there may be no memory to copy to */
    memcpy(t->travels, t->gradient, bytes);
    if (!delays(values, step)) return;
    if (!t->anchored) memcpy(t->anchor, t->weights, bytes);
    turn(values, t);
    memcpy(t->weights, t->anchor, bytes);
    t->anchored = true;
    t->apply(t->ctx, t->weights, t->gradient, true);
}

static void arrive(const double *values, uint64_t step, gw_sync_tensor *t) {
    t->apply(t->ctx, delays(values, step) ? t->anchor : t->weights, t->travels, false);
}

static void settle(gw_sync_tensor *t) {
    if (t->anchored) memcpy(t->weights, t->anchor, t->count * sizeof(float));
    t->anchored = false;
}

const gw_sync gw_sync_delayed = {
    .technique = {.name = "delayed",
                  .about = "compute goes on with a local update; the shared one replaces it a step later (OD-SGD)",
                  .params = (const gw_param[]){{.name = "warmup",
                                                .kind = GW_PARAM_INTEGER,
                                                .preset = 200,
                                                .lowest = 0,
                                                .highest = 1e9,
                                                .about = "synchronous steps first"},
                                               {.name = "local",
                                                .kind = GW_PARAM_CHOICE,
                                                .choices = GW_CHOICES("sgd", "momentum", "dcasgd"),
                                                .about = "optimiser of the local update"},
                                               {.name = "rate",
                                                .kind = GW_PARAM_NUMBER,
                                                .preset = 1,
                                                .lowest = 0,
                                                .highest = 100,
                                                .about = "of the local update, times the rate of the step"},
                                               {.name = "lambda",
                                                .kind = GW_PARAM_NUMBER,
                                                .preset = LAMBDA_PRESET,
                                                .lowest = 0,
                                                .highest = 100,
                                                .about = "strength of the compensation of dcasgd"},
                                               {.name = "momentum",
                                                .kind = GW_PARAM_NUMBER,
                                                .preset = MOMENTUM_PRESET,
                                                .lowest = 0,
                                                .highest = 1,
                                                .about = "of the local update"},
                                               {.name = NULL}},
                  .examples = GW_CHOICES("warmup=0", "warmup=2", "warmup=1,local=dcasgd")},
    .needs_update = true,
    .keeps_anchor = true,
    .keeps_momentum = keeps_momentum,
    .refuses = refuses,
    .travels_apart = true,
    .runs_ahead = delays,
    .norms = norms,
    .leave = leave,
    .arrive = arrive,
    .settle = settle,
};
