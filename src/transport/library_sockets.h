/* library_sockets.h - the congestion control of sockets that a library opened in this process.
 *
 * Such sockets use the system's default, which may be bbr (congestion.h). Neither libfabric nor ZeroMQ has a call to
 * change it, but we can find the sockets among our descriptors by their addresses. */
#ifndef GW_TRANSPORT_LIBRARY_SOCKETS_H
#define GW_TRANSPORT_LIBRARY_SOCKETS_H

#include "bootstrap/address.h"

/* Switches sockets from bbr to cubic: those bound to this address and port (own), or those connected to it. */
void gw_library_sockets_leave_bbr(const gw_address *address, bool own);

#endif
