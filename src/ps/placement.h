/* placement.h - which ranks run the servers and their replicas, and which rank has a server's state. Every rank
 * computes the same placement at commit and after a loss, from what all ranks say about themselves. Pure. */
#ifndef GW_PS_PLACEMENT_H
#define GW_PS_PLACEMENT_H

#include "base/status.h"

/* What a rank says about itself. Sent as it is. */
typedef struct gw_ps_member {
    int32_t member;       /* gw_member_id: kept by its process, and by one that replaces it */
    uint32_t generation;  /* the generation of the job in which the process joined */
    int32_t serves;       /* the server whose state it has; -1: none */
    int32_t copies;       /* the server whose replica it has; -1: none */
    uint32_t fresh;       /* 1: it has just started, and has no state */
    uint32_t serves_only; /* 1: it is only a server, not a worker */
    uint32_t leaves;      /* 1: it makes no more steps */
    uint32_t serial;      /* of the reducer among those with servers; fresh: the next number of its process */
    uint64_t first_step;  /* the number of the job's first step */
    uint64_t pushes;      /* that it has made, in the partition with the most */
} gw_ps_member;

typedef struct gw_placement {
    int world, servers;
    gw_ps_member *members; /* world entries */
    int *rank_of;          /* of each server */
    int *replica_of;       /* the rank of each server's replica; -1: none */
    int *source;           /* the rank that has each server's state; -1: none */
    bool all_fresh;        /* all ranks have just started */
} gw_placement;

/* members: world entries, copied. replicas: 0 or 1. */
gw_status gw_placement_open(gw_placement *placement, const gw_ps_member *members, int world, int servers, int replicas,
                            gw_error *error);
void gw_placement_close(gw_placement *placement); /* a zeroed one is fine */

int gw_placement_server(const gw_placement *placement, int rank);  /* the server that runs there, -1: none */
int gw_placement_replica(const gw_placement *placement, int rank); /* the server whose replica is there, -1: none */
int gw_placement_workers(const gw_placement *placement);
/* The clock of a restarted worker: that of the slowest worker, so it blocks nobody. */
uint64_t gw_placement_slowest_clock(const gw_placement *placement);
uint64_t gw_placement_first_step(const gw_placement *placement); /* of the ranks that were not restarted */

/* The reducer's serial number: that of the ranks that have it already, else the first that no rank has used. */
uint32_t gw_ps_serial(const gw_ps_member *members, int world);

#endif
