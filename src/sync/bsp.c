/* bsp.c - bulk synchronous: every step waits for the mean of all gradients. */
#include "sync/sync.h"

static void arrive(const double *values, uint64_t step, gw_sync_tensor *t) {
    (void)values;
    (void)step;
    if (t->weights) t->apply(t->ctx, t->weights, t->travels, false);
}

const gw_sync gw_sync_bsp = {
    .technique = {.name = "bsp", .about = "every rank waits for all in every step"},
    .synchronous = true,
    .arrive = arrive,
};
