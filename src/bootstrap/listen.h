/* listen.h - opens the sockets of the connection manager: all are non-blocking and closed on exec. */
#ifndef GW_BOOTSTRAP_LISTEN_H
#define GW_BOOTSTRAP_LISTEN_H

#include "bootstrap/address.h"

/* Listens on address (its port is ignored) at the first free port of low..high; 0..0: any port. *bound gets the port
 * too. */
gw_status gw_listen_open(const gw_address *address, int low, int high, int *fd, gw_address *bound, gw_error *error);
/* Takes over a socket that already listens (the launcher's) at a port of low..high. On failure it is left as it was. */
gw_status gw_listen_adopt(int fd, int low, int high, gw_address *bound, gw_error *error);

/* Begins to connect. 0: connected or on its way; else an errno. *fd is -1 on failure. */
int gw_connect_begin(const gw_address *address, int *fd);
/* After the socket became writable: 0 when connected, else an errno. */
int gw_connect_end(int fd);

#endif
