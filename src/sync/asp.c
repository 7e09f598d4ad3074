/* asp.c - asynchronous (Hogwild over servers, Downpour SGD: Dean et al. 2012): a push is applied when it comes and
 * answered at once with the weights as they are. Nobody waits for anybody; gradients are as old as their worker is
 * slow. */
#include "sync/sync.h"

static gw_sync_rule rule(const double *values) {
    (void)values;
    return (gw_sync_rule){.at_once = true, .lead = UINT64_MAX};
}

void gw_sync_pulled(const double *values, uint64_t step, gw_sync_tensor *t) {
    (void)values;
    (void)step;
    (void)t;
}

const gw_sync gw_sync_asp = {
    .technique = {.name = "asp", .about = "nobody waits: servers apply each push when it comes (arch=ps)"},
    .rule = rule,
    .needs_update = true,
    .arrive = gw_sync_pulled,
};
