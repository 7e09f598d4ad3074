/* host.h - rank 0's part of the rendezvous. */
#ifndef GW_TRANSPORT_HOST_H
#define GW_TRANSPORT_HOST_H

#include "transport/rendezvous.h"

#include <poll.h>

gw_status gw_rendezvous_host(gw_gateway *gateway, const gw_meeting *meeting, const gw_endpoint *mine, int world,
                             gw_time deadline, gw_endpoint *all, gw_error *error);
/* Sleeps until one of the descriptors is ready or the time has come. */
void gw_rendezvous_sleep(struct pollfd *fds, int count, gw_time until);
/* The meeting will not take place; and until when to sleep at most so that this is noticed. */
bool gw_rendezvous_off(const gw_meeting *meeting);
gw_time gw_rendezvous_look(const gw_meeting *meeting, gw_time until);

#endif
