/* placement.h - which ranks run the servers and their replicas, and who has what a server knew. Decided anew whenever
 * ranks come together, by every rank alike, from what all say of themselves. Pure. */
#ifndef GW_SERVER_PLACEMENT_H
#define GW_SERVER_PLACEMENT_H

#include "base/status.h"

/* What a rank says of itself; goes over the wire as it is. */
typedef struct gw_attendant {
    int32_t seat;        /* the number that its process keeps, and whoever comes in its place */
    uint32_t life;       /* the round of the job in which the process came */
    int32_t serves;      /* the server whose state it has; -1: none */
    int32_t copies;      /* the server whose replica it has; -1: none */
    uint32_t fresh;      /* 1: it has just been started, and knows nothing yet */
    uint32_t only;       /* 1: it serves and does not work */
    uint32_t leaves;     /* 1: it makes no more steps */
    uint32_t reserved;   /* 0 */
    uint64_t first_step; /* the number of the job's first step */
    uint64_t pushes;     /* that it has made, in the parcel that is furthest */
} gw_attendant;

typedef struct gw_placement {
    int world, servers;
    gw_attendant *who; /* world entries */
    int *rank_of;      /* of each server */
    int *copy_of;      /* the rank of each server's replica; -1: none */
    int *source;       /* the rank that has each server's state; -1: nobody */
    bool all_fresh;
} gw_placement;

/* attendants: world entries, copied. replicas: 0 or 1. */
gw_status gw_placement_open(gw_placement *placement, const gw_attendant *attendants, int world, int servers,
                            int replicas, gw_error *error);
void gw_placement_close(gw_placement *placement); /* of zeros is fine */

int gw_placement_server(const gw_placement *placement, int rank); /* that runs there, -1: none */
int gw_placement_copy(const gw_placement *placement, int rank);   /* the server whose replica is there, -1: none */
int gw_placement_workers(const gw_placement *placement);
/* How many pushes somebody who comes anew is counted to have made, so that he holds nobody back: as the slowest. */
uint64_t gw_placement_floor(const gw_placement *placement);
uint64_t gw_placement_first_step(const gw_placement *placement); /* of those who were there before */

#endif
