/* job_layout.h - placement of ranks on hosts, for commands that show what a job would do without running it. */
#ifndef GW_CLI_COMMON_JOB_LAYOUT_H
#define GW_CLI_COMMON_JOB_LAYOUT_H

#include "plan/plan.h"

/* Places ranks on hosts in contiguous blocks; hosts <= ranks. links: a file of gradwire doctor, whose first hosts are
 * used, or NULL; hosts 0: all hosts of the file. order, host_of and rack_of: `ranks` entries each. racks: hosts are in
 * that many, in blocks; 0: what the file's links say. */
gw_status gw_job_layout(int ranks, int hosts, int racks, const char *links, int *order, int *host_of, int *rack_of,
                        gw_topology *topology, gw_error *error);
/* Prints the ring order, "0 2 1 3 (worst link: 14.1 us, 119 MB/s)"; prints nothing if no link was measured and the
 * ranks are in numerical order. */
void gw_print_ring_order(const char *before, const gw_topology *topology, const char *after);
/* Prints the plan for each size: "oneshot up to 8 KiB, then ring". */
void gw_print_arch_choice(gw_collective collective, const gw_topology *topology);

#endif
