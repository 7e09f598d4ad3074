/* interface.h - which of this host's addresses to listen on and to give to the others.
 *
 * A selection is written as for NCCL: "eth,ib" are prefixes of names, in order of preference; "=eth0" names exactly;
 * "^docker,veth" is anything but those ("^=" exactly). Names may differ from host to host. Without a selection, the
 * interface that routes to rank 0 is used; loopback is used only if rank 0 is on loopback. */
#ifndef GW_BOOTSTRAP_INTERFACE_H
#define GW_BOOTSTRAP_INTERFACE_H

#include "bootstrap/address.h"

#include <net/if.h>

#define GW_INTERFACES_MAX 128

/* One address of one interface; interfaces with several appear several times. */
typedef struct gw_interface {
    char name[IF_NAMESIZE];
    gw_address address; /* port 0 */
    bool up;
} gw_interface;

/* What this host has now. *count <= GW_INTERFACES_MAX. */
gw_status gw_interface_list(gw_interface list[GW_INTERFACES_MAX], int *count, gw_error *error);

/* -1 if the name is not selected, else the position of the matching item in the list (0 is preferred). */
int gw_interface_preference(const char *selection, const char *name);
/* The address preferred by the selection among those of interfaces that are up. Loopback has to be named, link-local
 * comes last, and addresses of `family` (AF_UNSPEC: either) come first. Pure. */
gw_status gw_interface_pick(const char *selection, int family, const gw_interface *list, int count, gw_address *chosen,
                            gw_error *error);

/* selection NULL or "": by the route to `master`. The port of *chosen is 0. */
gw_status gw_interface_choose(const char *selection, const gw_address *master, gw_address *chosen, gw_error *error);

/* The addresses of rank 0, among those that `host` resolves to. Debian gives a host's own name the address 127.0.1.1,
 * which no other host could use. If a name (other than localhost) resolves only to loopback, this host's own address by
 * the selection replaces it, so that all its ranks agree; loopback remains if there is no network at all. */
gw_status gw_interface_master(const char *host, const char *selection, gw_address *list, int room, int *count,
                              gw_error *error);
bool gw_interface_is_local(const gw_address *address); /* one of this host's own */

#endif
