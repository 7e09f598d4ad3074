/* deciding.h - what a reducer that chooses its strategy has measured. */
#ifndef GW_REDUCER_DECIDING_H
#define GW_REDUCER_DECIDING_H

#include <stdbool.h>

#include "decide/decider.h"
#include "gradwire/reducer.h"

/* The links between hosts as they were measured last. False: they were not. */
bool gw_reducer_links(const gw_reducer *reducer, gw_machine *machine);
/* Whether it has chosen among all exact strategies, by trials: architecture and schedule were open, and no codec was
 * named. */
bool gw_reducer_chose_freely(const gw_reducer *reducer);

#endif
