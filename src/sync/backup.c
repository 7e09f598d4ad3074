/* backup.c - synchronous with backup workers (Chen et al. 2016): a round ends when all but the n slowest have pushed.
 * The mean is taken over those pushes; later ones are dropped. */
#include "sync/sync.h"

static gw_sync_rule rule(const double *values) { return (gw_sync_rule){.spare = (int)values[0]}; }

const gw_sync gw_sync_backup = {
    .technique = {.name = "backup",
                  .about = "as bsp, but a round does not wait for the slowest workers (arch=ps)",
                  .params = (const gw_param[]){{.name = "n",
                                                .kind = GW_PARAM_INTEGER,
                                                .preset = 1,
                                                .lowest = 1,
                                                .highest = 1e6,
                                                .about = "workers that are not waited for"},
                                               {.name = NULL}},
                  .examples = GW_CHOICES("n=1", "n=2", "n=3")},
    .rule = rule,
    .needs_update = true,
    .norms = gw_sync_norms_pulled,
    .leave = gw_sync_leave_pulled,
    .arrive = gw_sync_arrive_pulled,
};
