/* available_transports.h - the transports that a job can use on this host, and why it cannot use the others. */
#ifndef GW_DOCTOR_AVAILABLE_TRANSPORTS_H
#define GW_DOCTOR_AVAILABLE_TRANSPORTS_H

#include "doctor/report.h"

/* One entry for every transport of the table, or for each of its providers or libraries ("rdma:provider=tcp"). Returns
 * their number. Loads libfabric, which takes most of a second. */
int gw_transport_probes_find(gw_transport_probe list[GW_TRANSPORT_PROBES_MAX]);

#endif
