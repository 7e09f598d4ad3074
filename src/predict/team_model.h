/* team_model.h - the teams in which ranks carry out the hops of a route (arch/route.h): all ranks, the ranks of each
 * host, the lanes. Hosts are full, and ranks are numbered host by host. */
#ifndef GW_PREDICT_TEAM_MODEL_H
#define GW_PREDICT_TEAM_MODEL_H

#include "sim/plan_sim.h"

typedef enum gw_team_kind {
    GW_TEAM_ALL,   /* all ranks; those of a host share memory where the communicator does */
    GW_TEAM_APART, /* all ranks, by messages alone: a team that the step engine has opened */
    GW_TEAM_HOST,  /* the ranks of a host, which share memory likewise */
    GW_TEAM_LANE   /* one rank of each host */
} gw_team_kind;

typedef struct gw_team_model {
    int hosts, locals;       /* ranks of each host */
    gw_plan_sim_team *teams; /* owned: all, apart, then those of hosts, then those of lanes */
    int *members;            /* owned: what the teams point to */
} gw_team_model;

/* The topology outlives the teams. */
gw_status gw_team_model_open(gw_team_model *model, const gw_topology *topology, gw_error *error);
void gw_team_model_close(gw_team_model *model); /* a zeroed one is fine */

/* How many teams of a kind there are. */
int gw_team_model_count(const gw_team_model *model, gw_team_kind kind);
/* A rank's team of a kind. *index: its number among those of the kind; *member: the rank's number in it. */
const gw_plan_sim_team *gw_team_model_of(const gw_team_model *model, gw_team_kind kind, int rank, int *index,
                                         int *member);
/* The topology of the teams of a kind, which are all alike. */
const gw_topology *gw_team_model_topology(const gw_team_model *model, gw_team_kind kind);

#endif
