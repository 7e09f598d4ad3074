/* world.h - N ranks on one virtual clock, running a program of collectives under faults that a seed decides. Engine,
 * control plane, plans and kernels are the production code; only links and the clock are simulated. */
#ifndef GW_SIM_WORLD_H
#define GW_SIM_WORLD_H

#include "base/status.h"

#define GW_SIM_WORLD_MAX 4096

typedef enum gw_sim_fault {
    GW_SIM_NONE,
    GW_SIM_KILL,      /* one rank ends in mid-work */
    GW_SIM_KILL_TWO,
    GW_SIM_PARTITION, /* two sides no longer hear each other */
    GW_SIM_STOP,      /* one rank stops for longer than the deadline */
    GW_SIM_PAUSE,     /* one rank stops for less: late, not dead */
    GW_SIM_SLOW,      /* one rank's link is ten times slower */
    GW_SIM_MISMATCH,  /* one rank calls a collective with another count */
    GW_SIM_ABORT,     /* one rank calls gw_abort */
    GW_SIM_FAULTS
} gw_sim_fault;

const char *gw_sim_fault_name(gw_sim_fault fault);

typedef struct gw_sim_outcome {
    bool ok;            /* every promise held */
    char text[600];     /* what did not, or a summary */
    int world, operations;
    gw_sim_fault fault;
    int right, failed;  /* operations with the right result, and with an error, summed over ranks */
    uint64_t events;
    double seconds;     /* of virtual time */
} gw_sim_outcome;

/* Runs the scenario of this seed. world 0: from the seed. The same seed gives the same outcome. */
gw_status gw_sim_run(uint64_t seed, int world, gw_sim_outcome *outcome, gw_error *error);

#endif
