/* team_model.c - see team_model.h. */
#include "predict/team_model.h"

#include <stdlib.h>

enum { HOSTS_AT = 2 }; /* teams before those of hosts */

/* members: 0, 1, ... world - 1; the ranks of each lane; zeros, the host of each rank of a host. */
static void number(gw_team_model *m, int world) {
    int *lanes = m->members + world;
    for (int rank = 0; rank < world; rank++) {
        m->members[rank] = rank;
        lanes[rank % m->locals * m->hosts + rank / m->locals] = rank;
    }
}

gw_status gw_team_model_open(gw_team_model *m, const gw_topology *topology, gw_error *error) {
    int world = topology->world, hosts = gw_topology_hosts(topology), locals = world / hosts;
    *m = (gw_team_model){.hosts = hosts, .locals = locals};
    m->teams = calloc((size_t)(HOSTS_AT + hosts + locals), sizeof *m->teams);
    m->members = calloc(3 * (size_t)world, sizeof *m->members);
    if (!m->teams || !m->members) {
        gw_team_model_close(m);
        return gw_fail(error, GW_MEMORY, "out of memory for the teams of %d ranks", world);
    }
    number(m, world);
    gw_topology apart = *topology, host = *topology, lane = *topology;
    apart.coll = lane.coll = false;
    host.world = locals;
    host.host_of = m->members + 2 * world;
    lane.world = hosts;
    lane.host_of = m->members;
    m->teams[0] = (gw_plan_sim_team){*topology, m->members};
    m->teams[1] = (gw_plan_sim_team){apart, m->members};
    for (int h = 0; h < hosts; h++) m->teams[HOSTS_AT + h] = (gw_plan_sim_team){host, m->members + h * locals};
    for (int l = 0; l < locals; l++)
        m->teams[HOSTS_AT + hosts + l] = (gw_plan_sim_team){lane, m->members + world + l * hosts};
    return GW_OK;
}

void gw_team_model_close(gw_team_model *m) {
    free(m->teams);
    free(m->members);
    *m = (gw_team_model){.hosts = 0};
}

int gw_team_model_count(const gw_team_model *m, gw_team_kind kind) {
    return kind == GW_TEAM_HOST ? m->hosts : kind == GW_TEAM_LANE ? m->locals : 1;
}

const gw_plan_sim_team *gw_team_model_of(const gw_team_model *m, gw_team_kind kind, int rank, int *index, int *member) {
    int host = rank / m->locals, local = rank % m->locals;
    *index = kind == GW_TEAM_HOST ? host : kind == GW_TEAM_LANE ? local : 0;
    *member = kind == GW_TEAM_HOST ? local : kind == GW_TEAM_LANE ? host : rank;
    switch (kind) {
    case GW_TEAM_ALL: return &m->teams[0];
    case GW_TEAM_APART: return &m->teams[1];
    case GW_TEAM_HOST: return &m->teams[HOSTS_AT + host];
    case GW_TEAM_LANE: break;
    }
    return &m->teams[HOSTS_AT + m->hosts + local];
}

const gw_topology *gw_team_model_topology(const gw_team_model *m, gw_team_kind kind) {
    int index, member;
    return &gw_team_model_of(m, kind, 0, &index, &member)->topology;
}
