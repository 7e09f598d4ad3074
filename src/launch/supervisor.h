/* supervisor.h - the launcher's agent on one host: starts the ranks of the host spec, sends their output and exit
 * status to the launcher, and leaves no process behind, even if the launcher disappears. */
#ifndef GW_LAUNCH_SUPERVISOR_H
#define GW_LAUNCH_SUPERVISOR_H

#include "base/status.h"

/* Runs until the ranks have ended. `in` and `out` connect to the launcher. This process must have no other children. */
gw_status gw_supervise(int in, int out, gw_error *error);

#endif
