/* ssp.c - stale synchronous (Ho et al. 2013): as asp, but a worker that is ahead of the slowest by more than
 * `staleness` steps gets its answer only when the slowest has caught up. staleness=0 is bsp: a server waits for the
 * pushes of all workers, and makes one update with their mean. */
#include "sync/sync.h"

static gw_sync_rule rule(const double *values) {
    return (gw_sync_rule){.at_once = values[0] > 0, .staleness = (uint64_t)values[0]};
}

const gw_sync gw_sync_ssp = {
    .technique = {.name = "ssp",
                  .about = "as asp, but no worker leads the slowest by more than the staleness (arch=ps)",
                  .params = (const gw_param[]){{.name = "staleness",
                                                .kind = GW_PARAM_INTEGER,
                                                .preset = 3,
                                                .lowest = 0,
                                                .highest = 1e6,
                                                .about = "steps that a worker may be ahead; 0: as bsp"},
                                               {.name = NULL}},
                  .examples = GW_CHOICES("staleness=0", "staleness=1", "staleness=3")},
    .rule = rule,
    .needs_update = true,
    .norms = gw_sync_norms_pulled,
    .leave = gw_sync_leave_pulled,
    .arrive = gw_sync_arrive_pulled,
};
