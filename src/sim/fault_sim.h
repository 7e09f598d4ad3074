/* fault_sim.h - simulates N ranks on one virtual clock that run a program of collectives under a fault; a seed decides
 * both. Engine, control plane, plans and kernels are the production code; only links and the clock are simulated. */
#ifndef GW_SIM_FAULT_SIM_H
#define GW_SIM_FAULT_SIM_H

#include "base/status.h"

#define GW_SIM_WORLD_MAX 4096

typedef enum gw_sim_fault {
    GW_SIM_NONE,
    GW_SIM_KILL, /* one rank dies during the program */
    GW_SIM_KILL_TWO,
    GW_SIM_PARTITION, /* two sides cannot reach each other */
    GW_SIM_STOP,      /* one rank stops for longer than the deadline */
    GW_SIM_PAUSE,     /* one rank stops for less than the deadline: late, not dead */
    GW_SIM_SLOW,      /* one rank's link is ten times slower */
    GW_SIM_MISMATCH,  /* one rank calls a collective with another count */
    GW_SIM_ABORT,     /* one rank calls gw_abort */
    GW_SIM_FAULTS
} gw_sim_fault;

const char *gw_sim_fault_name(gw_sim_fault fault);

typedef struct gw_fault_sim_outcome {
    bool ok;        /* every check passed */
    char text[600]; /* the first that failed, or "" */
    int world, operations;
    gw_sim_fault fault;
    int right, failed; /* operations with the right result, and with an error, over all ranks */
    uint64_t events;
    double seconds; /* of virtual time */
} gw_fault_sim_outcome;

/* Runs the scenario of this seed. world 0: the seed decides. The same seed gives the same outcome. */
gw_status gw_fault_sim_run(uint64_t seed, int world, gw_fault_sim_outcome *outcome, gw_error *error);

#endif
