/* carriers.h - which transports a job could use on this host, and why not the others. */
#ifndef GW_DOCTOR_CARRIERS_H
#define GW_DOCTOR_CARRIERS_H

#include "doctor/report.h"

/* One for every transport, and for every provider or library of those that have several; as in a strategy
 * ("rdma:provider=tcp"). Returns their number. Wakes libfabric, which takes most of a second. */
int gw_carriers_find(gw_carrier list[GW_CARRIERS_MAX]);

#endif
