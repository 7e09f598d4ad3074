/* host_facts.h - facts that a probe finds on its own host. */
#ifndef GW_DOCTOR_HOST_FACTS_H
#define GW_DOCTOR_HOST_FACTS_H

#include "bootstrap/interface.h"
#include "doctor/report.h"

/* The address that this host would use in a job whose first host is `master`, its interface and MTU. selection: as in
 * interface.h, NULL: none. */
gw_status gw_facts_address(const char *master, const char *selection, gw_address *chosen, char interface[IF_NAMESIZE],
                           int *mtu, gw_error *error);
/* All addresses of a name, sorted and separated by commas; "" if there are none or too many. Asks the system's
 * resolver. */
void gw_facts_resolve(const char *name, char text[GW_DOCTOR_ADDRESS_BYTES]);
/* memcpy of blocks larger than the caches, bytes per second, best of 5; 0: out of memory. */
double gw_facts_memory(void);
/* The kernel's boot id: the same for all namespaces of one machine; "-": unknown. */
#define GW_BOOT_BYTES 64
void gw_facts_boot(char text[GW_BOOT_BYTES]);

#endif
