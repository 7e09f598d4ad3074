/* rank_process.h - the process of one rank: in its own process group, with its output in two pipes; the kernel kills it
 * if its parent dies. */
#ifndef GW_LAUNCH_RANK_PROCESS_H
#define GW_LAUNCH_RANK_PROCESS_H

#include <sys/types.h>

#include "base/clock.h"
#include "launch/host_spec.h"
#include "launch/launch_protocol.h"

typedef struct gw_rank_process {
    pid_t pid;     /* process id and process group; 0: not started, or reaped */
    int stream[2]; /* its standard output and error, non-blocking; -1: closed */
    gw_time started;
} gw_rank_process;

/* Starts rank `local` of the spec. On failure returns an errno and sets *step. */
int gw_rank_start(gw_rank_process *rank, const gw_host_spec *spec, int local, gw_start_step *step);

#endif
