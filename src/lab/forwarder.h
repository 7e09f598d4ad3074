/* forwarder.h - the network between the hosts of a lab, where it delays, loses or alters packets: a process that reads
 * the packets of every host's TUN device and writes them to the receiver's. Several Gbit/s on one core, because the
 * kernel hands over whole super-packets (segmentation offload); they are cut only where a segment meets a fate of its
 * own. */
#ifndef GW_LAB_FORWARDER_H
#define GW_LAB_FORWARDER_H

#include <stdint.h>

#include "base/status.h"
#include "lab/lab_options.h"

typedef struct gw_forwarder gw_forwarder;

/* Host i has the address first_address + i (IPv4, in the byte order of this machine). */
gw_status gw_forwarder_open(gw_forwarder **forwarder, const gw_lab_options *options, uint32_t first_address,
                            gw_error *error);
void gw_forwarder_close(gw_forwarder *forwarder); /* NULL is fine */

/* The TUN device of a host, in this namespace: its descriptor, or -1. */
int gw_forwarder_device(const char *name, gw_error *error);

/* Forwards until `alive` can be read. One device for each host. `forwarder` is a gw_forwarder. */
void gw_forwarder_run(void *forwarder, int alive, const int *devices);

#endif
