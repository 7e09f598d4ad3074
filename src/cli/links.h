/* links.h - where the ranks of a job would be, for commands that show what it would do. */
#ifndef GW_CLI_LINKS_H
#define GW_CLI_LINKS_H

#include "plan/plan.h"

/* Spreads ranks over hosts in blocks; hosts <= ranks. links: a file of gradwire doctor whose first hosts these are, or
 * NULL; hosts 0: all that it has. order and host_of have room for `ranks` entries. */
gw_status gw_links_spread(int ranks, int hosts, const char *links, int *order, int *host_of, gw_topology *topology,
                          gw_error *error);
/* "0 2 1 3 (worst link: 14.1 us, 119 MB/s)" on stdout, or "" where nothing was measured and ranks go by number. */
void gw_links_say_order(const char *before, const gw_topology *topology, const char *after);
/* "oneshot up to 8 KiB, then ring" */
void gw_links_say_choice(gw_collective collective, const gw_topology *topology);

#endif
