/* links.h - measures the links between the hosts of a communicator while nothing else of it is in flight: what
 * `gradwire doctor` measures, by messages of the job itself. */
#ifndef GW_DECIDE_LINKS_H
#define GW_DECIDE_LINKS_H

#include "gradwire.h"
#include "predict/machine.h"

/* Sets latency, rate and (up to 8 hosts) the links between every two hosts; all ranks get the same figures. Cost: for
 * each distance between hosts 16 round trips, and a transfer of about 20 ms. One host: *machine stays as it is. A
 * collective call. */
gw_status gw_links_measure(gw_comm *comm, gw_machine *machine, gw_error *error);

#endif
