/* silence.h - how long nothing was heard of a process or a host. The time in which this process did not look itself (it
 * was stopped, or starved) is not the other's silence, so it counts only in small part. Pure. */
#ifndef GW_LAUNCH_SILENCE_H
#define GW_LAUNCH_SILENCE_H

#include "base/clock.h"

typedef struct gw_silence {
    gw_time lasted; /* ns, as far as it counts */
    gw_time looked; /* when it was last looked at */
} gw_silence;

/* How much silence is the end, for a job with that deadline: less than the deadline, so that the others go on within
 * it; but never less than a second, which a busy machine may take to answer. */
gw_time gw_silence_limit(gw_time deadline);
/* How often one has to look, and to give a sign of life, under that limit. */
gw_time gw_silence_period(gw_time limit);

void gw_silence_heard(gw_silence *silence, gw_time now);
/* Nothing was heard since the last look. Returns how long it has lasted. */
gw_time gw_silence_look(gw_silence *silence, gw_time now, gw_time limit);

#endif
