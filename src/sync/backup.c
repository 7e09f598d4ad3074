/* backup.c - synchronous with backup workers (Chen et al. 2016): a round is over when all but the n slowest have
 * pushed; the mean is taken over those, and what comes late is thrown away. */
#include "sync/sync.h"

static gw_sync_rule rule(const double *values) { return (gw_sync_rule){.spare = (int)values[0]}; }

const gw_sync gw_sync_backup = {
    .technique = {.name = "backup",
                  .about = "as bsp, but the slowest are not waited for (arch=ps)",
                  .params = (const gw_param[]){{.name = "n",
                                                .kind = GW_PARAM_INTEGER,
                                                .preset = 1,
                                                .lowest = 1,
                                                .highest = 1e6,
                                                .about = "workers that are not waited for"},
                                               {.name = NULL}}},
    .rule = rule,
    .needs_update = true,
    .arrive = gw_sync_pulled,
};
