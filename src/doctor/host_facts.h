/* host_facts.h - what a probe can say of its host alone. */
#ifndef GW_DOCTOR_HOST_FACTS_H
#define GW_DOCTOR_HOST_FACTS_H

#include "doctor/report.h"
#include "transport/interface.h"

/* The address that the host would use in a job whose first host is called `master`, its interface and the MTU of that.
 * selection as in interface.h, NULL: none. */
gw_status gw_facts_address(const char *master, const char *selection, gw_address *chosen, char interface[IF_NAMESIZE],
                           int *mtu, gw_error *error);
/* All addresses of a name, sorted, with commas; "" where there are none or too many. Asks the system's resolver. */
void gw_facts_resolve(const char *name, char text[GW_DOCTOR_ADDRESS_BYTES]);
/* memcpy of blocks that no cache holds, bytes per second, the best of some; 0 where there is no memory. */
double gw_facts_memory(void);
/* The same for all that runs on one machine since its start; "-" where it is not known. */
#define GW_BOOT_BYTES 64
void gw_facts_boot(char text[GW_BOOT_BYTES]);

#endif
