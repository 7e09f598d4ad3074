/* namespace_hosts.h - a lab: hosts made of network namespaces. Each has an interface eth0 that is shaped to a rate in
 * both directions. It leads to a common bridge; where the lab delays, loses or alters packets, to a forwarder
 * (forwarder.h) instead. Needs root and the programs ip and tc. Names are unique to this process; the addresses are
 * visible only inside the lab.
 *
 * A lab is always removed: by gw_lab_close or, if this process ends in any other way, by the watchdog process. One lab
 * per process at a time. */
#ifndef GW_LAB_NAMESPACE_HOSTS_H
#define GW_LAB_NAMESPACE_HOSTS_H

#include "lab/lab_options.h"

#define GW_LAB_NAME_BYTES 32

typedef struct gw_lab gw_lab;

gw_status gw_lab_open(gw_lab **lab, const gw_lab_options *options, gw_error *error);
/* Does not end processes that still run in the lab. NULL is fine. */
void gw_lab_close(gw_lab *lab);

/* The namespace of a host, for `ip netns exec NAME`, and the host's address. Valid until gw_lab_close. */
const char *gw_lab_name(const gw_lab *lab, int host);
const char *gw_lab_address(const gw_lab *lab, int host);

#endif
