/* foreign.h - sockets of this process that a library opened, and their congestion control.
 *
 * They take the system's, which may be bbr (congestion.h). Neither libfabric nor ZeroMQ has a call to change it, but
 * the sockets are this process's, and known by their addresses. */
#ifndef GW_TRANSPORT_FOREIGN_H
#define GW_TRANSPORT_FOREIGN_H

#include "transport/address.h"

/* Takes those that have this address and port themselves (own), or are connected to it, from bbr to cubic. */
void gw_foreign_leave_bbr(const gw_address *address, bool own);

#endif
