/* family.h - no process is left behind: a process that calls gw_family_adopt becomes the parent of every descendant
 * whose own parent dies, whatever session or group it moved to, and so can end them all. */
#ifndef GW_LAUNCH_FAMILY_H
#define GW_LAUNCH_FAMILY_H

#include "base/clock.h"

void gw_family_adopt(void);

/* Kills and reaps every child of this process, those that are adopted meanwhile too, for at most `budget`. Returns how
 * many were still there at the end. */
int gw_family_end(gw_time budget);

/* Kills those of them that were started with all of these variables ("NAME=value", NULL at the end), and what they have
 * started. The caller reaps. */
int gw_family_end_marked(const char *const *marks, gw_time budget);

#endif
