/* rank.h - one rank as a process: started in a process group of its own, its output in two pipes, and killed by the
 * kernel if its parent dies. */
#ifndef GW_LAUNCH_RANK_H
#define GW_LAUNCH_RANK_H

#include <sys/types.h>

#include "base/clock.h"
#include "launch/order.h"
#include "launch/wire.h"

typedef struct gw_rank_process {
    pid_t pid;     /* and process group; 0: not running (not started, or reaped) */
    int stream[2]; /* its standard output and error, non-blocking; -1: at its end */
    gw_time started;
} gw_rank_process;

/* Starts rank `local` of the order. On failure returns an errno and sets *step. */
int gw_rank_start(gw_rank_process *rank, const gw_order *order, int local, gw_start_step *step);

#endif
