/* liveness.h - finds hung ranks of an elastic job on this host by their heartbeats (base/heartbeat.h). No heartbeat is
 * due from a program that has not joined the job yet, or has left it. */
#ifndef GW_LAUNCH_LIVENESS_H
#define GW_LAUNCH_LIVENESS_H

#include <sys/types.h>

#include "base/heartbeat.h"
#include "launch/silence.h"

typedef enum gw_liveness_state {
    GW_LIVENESS_FINE,
    GW_LIVENESS_HUNG,  /* no heartbeat for too long; HUNG and TRACED are returned once for each silence */
    GW_LIVENESS_TRACED /* the same, but a debugger holds it */
} gw_liveness_state;

typedef struct gw_liveness_rank {
    uint32_t beats; /* as last seen */
    gw_silence silence;
    bool reported;                      /* this silence was already returned */
    char address[GW_HEARTBEAT_ADDRESS]; /* as last reported */
    int asks;                           /* generation that it waits for, as last reported */
} gw_liveness_rank;

typedef struct gw_liveness {
    gw_heartbeat_slot *slots; /* by member id; NULL: nothing is watched */
    gw_liveness_rank *ranks;  /* of this host; owned */
    int first_member;         /* member id of its first rank */
} gw_liveness;

gw_status gw_liveness_open(gw_liveness *liveness, int roster_file, int first_member, int ranks, gw_error *error);
void gw_liveness_close(gw_liveness *liveness);

/* A process is started for this rank: clears the slot of an earlier one. */
void gw_liveness_start(gw_liveness *liveness, int local, gw_time now);
/* Checks the heartbeat; lowers *next to the time at which the next check is due. */
gw_liveness_state gw_liveness_look(gw_liveness *liveness, int local, gw_time now, gw_time *next);
/* Whether the rank has joined the job and no debugger holds it, so it may be killed. */
bool gw_liveness_joined(const gw_liveness *liveness, int local);
/* The generation that the rank waits for, and the rank that it blames. False: the generation is unchanged. */
bool gw_liveness_asks(gw_liveness *liveness, int local, int *generation, int *blamed);
/* The address at which the rank listens; NULL: unchanged. */
const char *gw_liveness_address(gw_liveness *liveness, int local);

#endif
