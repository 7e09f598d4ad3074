/* training_watch.h - what a policy promises about the pieces in flight, seen from outside after each poll of a rank.
 * Credit and urgency are promises of the rank that decides; the others follow it. */
#ifndef GW_SIM_TRAINING_WATCH_H
#define GW_SIM_TRAINING_WATCH_H

#include "schedule/schedule.h"

typedef struct gw_watch {
    bool decides;
    bool *moved; /* of each piece: it was in flight at the last look; owned */
    int pieces;
} gw_watch;

void gw_watch_free(gw_watch *watch);
/* What was broken since the last look; NULL: nothing. */
const char *gw_watch_look(gw_watch *watch, const gw_schedule *schedule);

#endif
