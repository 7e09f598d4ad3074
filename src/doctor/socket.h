/* socket.h - whole messages over non-blocking sockets, each with a deadline. */
#ifndef GW_DOCTOR_SOCKET_H
#define GW_DOCTOR_SOCKET_H

#include <stdbool.h>
#include <stddef.h>

#include "base/clock.h"
#include "bootstrap/address.h"

/* Waits for one of the events, or an error. False: the deadline has passed. */
bool gw_socket_await(int fd, short events, gw_time deadline);
/* False: the peer is gone or the deadline has passed. */
bool gw_socket_send(int fd, const void *data, size_t bytes, gw_time deadline);
bool gw_socket_receive(int fd, void *data, size_t bytes, gw_time deadline);

/* The address of this end and of the other. */
bool gw_socket_own(int fd, gw_address *address);
bool gw_socket_peer(int fd, gw_address *address);

#endif
