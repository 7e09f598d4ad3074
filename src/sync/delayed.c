/* delayed.c - OD-SGD (Xu et al. 2020): after a synchronous warm-up a worker sends its gradient, updates a local copy of
 * the weights with it at once and computes the next step on that copy. The weights that all ranks share (the anchor
 * here) replace the copy one step later. A step takes the longer of compute and communication, not their sum. */
#include "sync/sync.h"

#include <string.h>

static bool delays(const double *values, uint64_t step) { return (double)step >= values[0]; }

static void leave(const double *values, uint64_t step, gw_sync_tensor *t) {
    size_t bytes = t->count * sizeof(float);
    if (!bytes) return; /* there may be no memory to copy to */
    memcpy(t->travels, t->gradient, bytes);
    if (!delays(values, step)) return;
    if (!t->anchored) memcpy(t->anchor, t->weights, bytes);
    else memcpy(t->weights, t->anchor, bytes);
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
                                               {.name = NULL}},
                  .examples = GW_CHOICES("warmup=0", "warmup=2")},
    .needs_update = true,
    .keeps_anchor = true,
    .travels_apart = true,
    .runs_ahead = delays,
    .leave = leave,
    .arrive = arrive,
    .settle = settle,
};
