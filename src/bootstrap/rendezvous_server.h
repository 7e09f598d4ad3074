/* rendezvous_server.h - rank 0's side of the rendezvous, and functions that both sides use. */
#ifndef GW_BOOTSTRAP_RENDEZVOUS_SERVER_H
#define GW_BOOTSTRAP_RENDEZVOUS_SERVER_H

#include "bootstrap/rendezvous.h"

#include <poll.h>

gw_status gw_rendezvous_serve(gw_connections *connections, const gw_rendezvous_address *rendezvous,
                              const gw_endpoint *mine, int world, gw_time deadline, gw_endpoint *all, gw_error *error);
/* Sleeps until one of the descriptors is ready or the time has come. */
void gw_rendezvous_sleep(struct pollfd *fds, int count, gw_time until);
/* Whether the rendezvous is cancelled; and the time to sleep until at most, so that this is noticed. */
bool gw_rendezvous_cancelled(const gw_rendezvous_address *rendezvous);
gw_time gw_rendezvous_wake_time(const gw_rendezvous_address *rendezvous, gw_time until);

#endif
