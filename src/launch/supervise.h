/* supervise.h - the launcher's hand on one host: starts the ranks it is ordered to, carries their output and ends back,
 * and leaves nothing behind, also when the launcher disappears. */
#ifndef GW_LAUNCH_SUPERVISE_H
#define GW_LAUNCH_SUPERVISE_H

#include "base/status.h"

/* Runs until the ranks have ended. `in` and `out` lead to the launcher. This process must have no other children. */
gw_status gw_supervise(int in, int out, gw_error *error);

#endif
