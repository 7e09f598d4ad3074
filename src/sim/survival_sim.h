/* survival_sim.h - simulates which ranks go on after ranks die or the network is cut, on a virtual clock. Core, control
 * plane, agreement and engine are the production code; only links and the clock are simulated. Up to 32 ranks. */
#ifndef GW_SIM_SURVIVAL_SIM_H
#define GW_SIM_SURVIVAL_SIM_H

#include "base/clock.h"
#include "base/status.h"

#define GW_SURVIVAL_WORLD_MAX 32
#define GW_SURVIVAL_DEADLINE (3 * GW_SECOND)

typedef struct gw_survival_sim {
    int world;
    uint64_t seed;  /* of delays and of the times of faults */
    uint32_t dead;  /* bit set of the ranks that are killed */
    uint32_t side;  /* bit set of the ranks on one side of a cut; 0: no cut */
    gw_time spread; /* all faults happen within this time */
    int pairs;      /* number of additional pairs of ranks that the seed cuts */
    int messages;   /* if not 0: the first rank of `dead` dies after sending this many messages of an agreement */
    bool any_side;  /* quorum=off */
} gw_survival_sim;

typedef struct gw_survival_sim_outcome {
    bool ok;          /* never two jobs, no wrong sum, every gw_shrink answered within one deadline */
    char text[600];   /* the first check that failed */
    int jobs;         /* jobs that go on at the end: all their members are alive and agree */
    uint32_t members; /* of that job */
    uint32_t refused; /* ranks that are alive and whose gw_shrink failed */
    char why[600];    /* the error of the lowest rank in `refused` */
    uint64_t events;
} gw_survival_sim_outcome;

gw_status gw_survival_sim_run(const gw_survival_sim *survival, gw_survival_sim_outcome *outcome, gw_error *error);

#endif
