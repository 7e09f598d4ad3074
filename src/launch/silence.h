/* silence.h - measures how long a process or a host has been silent. Time in which this process itself did not check
 * (it was stopped, or starved) says nothing about the other side, so most of it does not count. Pure functions. */
#ifndef GW_LAUNCH_SILENCE_H
#define GW_LAUNCH_SILENCE_H

#include "base/clock.h"

typedef struct gw_silence {
    gw_time lasted; /* counted silence, ns */
    gw_time looked; /* time of the last check */
} gw_silence;

/* The silence after which the other side counts as lost: 7/8 of the job's deadline, so that the survivors go on within
 * the deadline. It is at least a second, because a busy machine may need that long to answer. */
gw_time gw_silence_limit(gw_time deadline);
/* The period of checks and of signs of life, for this limit. */
gw_time gw_silence_period(gw_time limit);

void gw_silence_heard(gw_silence *silence, gw_time now);
/* Called at a check, if there was no sign of life since the last check. Returns how long the silence has lasted. */
gw_time gw_silence_look(gw_silence *silence, gw_time now, gw_time limit);

#endif
