/* racks.h - which hosts are near each other: racks, or sites. From a file that the user writes,
 *
 *     # host (or its address) and rack
 *     node1 a
 *     node2 a
 *     node3 b
 *
 * or from the costs of links (link_file.h): hosts are in one rack if the slowest link among them takes at most half as
 * long for a byte as the fastest one to any host outside. */
#ifndef GW_ARCH_RACKS_H
#define GW_ARCH_RACKS_H

#include "arch/ring_order.h"
#include "base/status.h"

#define GW_RACKS_FILE_BYTES_MAX (1u << 20)

/* A line of the file may name either. */
typedef struct gw_rack_host {
    const char *name, *address;
} gw_rack_host;

/* Looks up hosts in the text of such a file: rack_of[i] gets the number of the rack of hosts[i]. `name` is used in
 * messages. Every host must be in it, once; it may know others. */
gw_status gw_racks_parse(const char *bytes, size_t size, const char *name, const gw_rack_host *hosts, int count,
                         int *rack_of, gw_error *error);
/* rack_of: wires->count entries. All 0 if the links are alike, or not all of them were measured. */
gw_status gw_racks_of_links(const gw_link_costs *wires, int *rack_of, gw_error *error);

#endif
