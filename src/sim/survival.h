/* survival.h - ranks die and the network is cut, on a virtual clock: who goes on? Core, control plane, agreement and
 * engine are the production code; only links and the clock are simulated. Worlds of up to 32 ranks. */
#ifndef GW_SIM_SURVIVAL_H
#define GW_SIM_SURVIVAL_H

#include "base/clock.h"
#include "base/status.h"

#define GW_SURVIVAL_WORLD_MAX 32
#define GW_SURVIVAL_DEADLINE (3 * GW_SECOND)

typedef struct gw_survival {
    int world;
    uint64_t seed;       /* of delays, and of the times of faults */
    uint32_t dead;       /* a bit for each rank that is killed */
    uint32_t side;       /* those on the one side of a cut; 0: no cut */
    gw_time spread;      /* faults happen within this time of each other */
    int pairs;           /* so many pairs of ranks, from the seed, cannot talk besides */
    int messages;        /* 0, or: the first of `dead` dies when it has sent so many messages of an agreement */
    bool any_side;       /* quorum=off */
} gw_survival;

typedef struct gw_survival_outcome {
    bool ok;             /* never two jobs, no wrong sum, every gw_shrink answered within one deadline */
    char text[600];      /* what was not so */
    int jobs;            /* that go on at the end: all members alive, and agreed */
    uint32_t members;    /* of that job */
    uint32_t told;       /* alive, and told by a sentence that they do not go on */
    char why[600];       /* the sentence of the lowest of them */
    uint64_t events;
} gw_survival_outcome;

gw_status gw_sim_survive(const gw_survival *survival, gw_survival_outcome *outcome, gw_error *error);

#endif
