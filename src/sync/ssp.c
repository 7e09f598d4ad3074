/* ssp.c - stale synchronous (Ho et al. 2013): as asp, but the answer to a worker that leads the slowest by more than
 * `lead` steps is held back until the slowest has caught up. lead=0 waits as bsp does. */
#include "sync/sync.h"

static gw_sync_rule rule(const double *values) {
    return (gw_sync_rule){.at_once = true, .lead = (uint64_t)values[0]};
}

const gw_sync gw_sync_ssp = {
    .technique = {.name = "ssp",
                  .about = "as asp, but nobody leads the slowest by more than so many steps (arch=ps)",
                  .params = (const gw_param[]){{.name = "lead",
                                                .kind = GW_PARAM_INTEGER,
                                                .preset = 3,
                                                .lowest = 0,
                                                .highest = 1e6,
                                                .about = "steps that a worker may be ahead"},
                                               {.name = NULL}}},
    .rule = rule,
    .needs_update = true,
    .arrive = gw_sync_pulled,
};
