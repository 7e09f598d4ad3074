/* asp.c - asynchronous (Hogwild over servers, Downpour SGD: Dean et al. 2012): a server applies a push when it arrives
 * and answers at once with the current weights. No worker waits for another; gradients are as stale as their worker is
 * slow. */
#include "sync/sync.h"

static gw_sync_rule rule(const double *values) {
    (void)values;
    return (gw_sync_rule){.at_once = true, .staleness = UINT64_MAX};
}

unsigned gw_sync_norms_pulled(const double *values, uint64_t step) {
    (void)values;
    (void)step;
    return GW_NORM_OWN;
}

void gw_sync_leave_pulled(const double *values, uint64_t step, gw_sync_tensor *t) {
    (void)values;
    (void)step;
    float scale = (float)t->scale;
    for (size_t i = 0; scale < 1 && i < t->count; i++) t->travels[i] *= scale;
}

void gw_sync_arrive_pulled(const double *values, uint64_t step, gw_sync_tensor *t) {
    (void)values;
    (void)step;
    (void)t;
}

const gw_sync gw_sync_asp = {
    .technique = {.name = "asp", .about = "nobody waits: servers apply each push when it arrives (arch=ps)"},
    .rule = rule,
    .needs_update = true,
    .norms = gw_sync_norms_pulled,
    .leave = gw_sync_leave_pulled,
    .arrive = gw_sync_arrive_pulled,
};
