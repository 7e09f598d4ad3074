/* periodic.c - local SGD (Stich 2019): every worker makes `every` steps of its own, then the models are averaged.
 * Workers send the difference to the last average (the anchor). from: synchronous until that step, local afterwards
 * (post-local SGD, Lin et al. 2020). outer: the averaged difference drives a Nesterov step (DiLoCo, Douillard et al.
 * 2023) with the given rate and momentum. The momentum of the optimiser itself stays local. */
#include "sync/sync.h"

#include <string.h>

enum { EVERY, FROM, OUTER, MOMENTUM };

static bool local(const double *values, uint64_t step) { return (double)step >= values[FROM]; }

static bool exchanges(const double *values, uint64_t step) {
    if (!local(values, step)) return true;
    return (step - (uint64_t)values[FROM] + 1) % (uint64_t)values[EVERY] == 0;
}

static unsigned norms(const double *values, uint64_t step) { return local(values, step) ? GW_NORM_OWN : GW_NORM_MEAN; }

static bool keeps_momentum(const double *values) { return values[OUTER] > 0; }

#define MOMENTUM_PRESET 0.9

static const char *refuses(const double *values) {
    bool set = values[MOMENTUM] < MOMENTUM_PRESET || values[MOMENTUM] > MOMENTUM_PRESET;
    return values[OUTER] > 0 || !set ? NULL : "momentum is that of the outer step, and outer=0 makes none";
}

static void leave(const double *values, uint64_t step, gw_sync_tensor *t) {
    if (!local(values, step)) return;
    if (!t->anchored) memcpy(t->anchor, t->weights, t->count * sizeof(float));
    t->anchored = true;
    t->apply(t->ctx, t->weights, t->gradient, false);
    if (!exchanges(values, step)) return;
    for (size_t i = 0; i < t->count; i++) t->travels[i] = t->weights[i] - t->anchor[i];
}

static void outer_step(const double *values, gw_sync_tensor *t) {
    float rate = (float)values[OUTER], mu = (float)values[MOMENTUM];
    for (size_t i = 0; i < t->count; i++) {
        t->momentum[i] = mu * t->momentum[i] + t->travels[i];
        t->weights[i] = t->anchor[i] + rate * (t->travels[i] + mu * t->momentum[i]);
    }
}

static void arrive(const double *values, uint64_t step, gw_sync_tensor *t) {
    if (!local(values, step)) {
        t->apply(t->ctx, t->weights, t->travels, false);
        return;
    }
    if (keeps_momentum(values)) outer_step(values, t);
    else
        for (size_t i = 0; i < t->count; i++) t->weights[i] = t->anchor[i] + t->travels[i];
    memcpy(t->anchor, t->weights, t->count * sizeof(float));
}

const gw_sync gw_sync_periodic = {
    .technique = {.name = "periodic",
                  .about = "local steps, then the models are averaged (local SGD, DiLoCo)",
                  .params = (const gw_param[]){{.name = "every",
                                                .kind = GW_PARAM_INTEGER,
                                                .preset = 8,
                                                .lowest = 2,
                                                .highest = 1e6,
                                                .about = "steps between two averages"},
                                               {.name = "from",
                                                .kind = GW_PARAM_INTEGER,
                                                .preset = 0,
                                                .lowest = 0,
                                                .highest = 1e9,
                                                .about = "synchronous until this step"},
                                               {.name = "outer",
                                                .kind = GW_PARAM_NUMBER,
                                                .preset = 0,
                                                .lowest = 0,
                                                .highest = 10,
                                                .about = "rate of an outer Nesterov step, 0.7 in DiLoCo; 0: none"},
                                               {.name = "momentum",
                                                .kind = GW_PARAM_NUMBER,
                                                .preset = MOMENTUM_PRESET,
                                                .lowest = 0,
                                                .highest = 1,
                                                .about = "momentum of the outer step"},
                                               {.name = NULL}},
                  .examples = GW_CHOICES("every=2", "every=3,from=1")},
    .needs_update = true,
    .local = true,
    .keeps_anchor = true,
    .keeps_momentum = keeps_momentum,
    .refuses = refuses,
    .exchanges = exchanges,
    .norms = norms,
    .leave = leave,
    .arrive = arrive,
};
