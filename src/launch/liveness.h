/* liveness.h - whether the ranks of an elastic job on this host are alive, by their heartbeats (base/pulse.h). A
 * program that has not joined the job yet, or has left it, owes none. */
#ifndef GW_LAUNCH_LIVENESS_H
#define GW_LAUNCH_LIVENESS_H

#include <sys/types.h>

#include "base/pulse.h"
#include "launch/silence.h"

typedef enum gw_liveness_state {
    GW_LIVENESS_FINE,
    GW_LIVENESS_HUNG,  /* no heartbeat for too long; this and the next are returned once for each silence */
    GW_LIVENESS_TRACED /* the same, but a debugger holds it */
} gw_liveness_state;

typedef struct gw_liveness_rank {
    uint32_t beats; /* as last seen */
    gw_silence silence;
    bool told; /* of this silence */
    char address[GW_PULSE_ADDRESS]; /* as last reported */
    int asks;                       /* likewise */
} gw_liveness_rank;

typedef struct gw_liveness {
    gw_pulse_slot *slots; /* by seat; NULL: nothing is watched */
    gw_liveness_rank *ranks; /* of this host; owned */
    int first_seat;
} gw_liveness;

gw_status gw_liveness_open(gw_liveness *liveness, int roll_file, int first_seat, int ranks, gw_error *error);
void gw_liveness_close(gw_liveness *liveness);

/* A process is started for this rank: what an earlier one left in the slot does not count. */
void gw_liveness_start(gw_liveness *liveness, int local, gw_time now);
/* *next: when to look again at the latest, if that is earlier. */
gw_liveness_state gw_liveness_look(gw_liveness *liveness, int local, gw_time now, gw_time *next);
/* Whether it is in the job and no debugger holds it: it may be killed. */
bool gw_liveness_joined(const gw_liveness *liveness, int local);
/* The round that the rank asks for and the rank that it blames, if that is news. */
bool gw_liveness_asks(gw_liveness *liveness, int local, int *round, int *blamed);
/* Where the rank listens, if that is news; NULL: it is not. */
const char *gw_liveness_address(gw_liveness *liveness, int local);

#endif
