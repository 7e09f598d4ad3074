/* schedule_check.h - checks after each poll of a rank that the buckets in flight obey the scheduling policy. Credit and
 * urgency bind only the rank that decides; the others follow it. */
#ifndef GW_SIM_SCHEDULE_CHECK_H
#define GW_SIM_SCHEDULE_CHECK_H

#include "schedule/schedule.h"

typedef struct gw_schedule_check {
    bool decides; /* this rank decides the order */
    bool *moved;  /* by bucket: it was in flight after the last poll; owned */
    int buckets;
} gw_schedule_check;

void gw_schedule_check_free(gw_schedule_check *check);
/* The rule that was broken since the last poll; NULL: none. */
const char *gw_schedule_check_poll(gw_schedule_check *check, const gw_schedule *schedule);

#endif
