/* subreaper.h - kills all descendants, so that no process is left behind. gw_subreaper_enable makes this process a
 * subreaper (prctl(2)): it becomes the parent of every descendant whose own parent dies, in any session or process
 * group. */
#ifndef GW_LAUNCH_SUBREAPER_H
#define GW_LAUNCH_SUBREAPER_H

#include "base/clock.h"

void gw_subreaper_enable(void);

/* Kills and reaps every child of this process, also those adopted meanwhile, for at most `budget`. Returns how many are
 * left. */
int gw_subreaper_kill_all(gw_time budget);

/* Kills only children that were started with all of these environment variables ("NAME=value", NULL at the end), and
 * their descendants. The caller reaps. */
int gw_subreaper_kill_marked(const char *const *marks, gw_time budget);

#endif
