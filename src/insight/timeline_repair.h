/* timeline_repair.h - makes a timeline whose writers were killed valid JSON again. */
#ifndef GW_INSIGHT_TIMELINE_REPAIR_H
#define GW_INSIGHT_TIMELINE_REPAIR_H

#include <stdbool.h>

/* Drops truncated objects and closes the array. Does not touch a file that is complete or missing. False on failure, or
 * if a process still writes to it. */
bool gw_timeline_repair(const char *path);

#endif
