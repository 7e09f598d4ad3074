/* rendezvous.h - every rank learns where every other is: all tell rank 0, rank 0 tells all.
 *
 * A rank joins a job like this:
 *
 *     gw_place_find(options, &place, error);
 *     gw_token_find(options->token, &token, error);
 *     gw_gateway_open(&gateway, place.rank, place.world, &token, place.job, error);
 *     gw_meeting_find(&place, interfaces, &meeting, error);
 *     gw_meeting_listen(gateway, &place, &meeting, interfaces, ports, &address, error);
 *     gw_endpoint_describe(place.rank, &address, &mine, error);
 *     gw_rendezvous(gateway, &meeting, &mine, place.world, deadline, all, error);
 *
 * Cost: two messages a rank; rank 0 sends world * world records in all. */
#ifndef GW_TRANSPORT_RENDEZVOUS_H
#define GW_TRANSPORT_RENDEZVOUS_H

#include "transport/endpoint.h"
#include "transport/meeting.h"

/* Blocks, at most until a little after `deadline` (on gw_clock_now's clock), and drives the gateway meanwhile. `all`
 * gets world entries; on failure its contents are undefined. Who is missing, which ranks disagree about the world, and
 * who came twice is told to every rank that got so far. */
gw_status gw_rendezvous(gw_gateway *gateway, const gw_meeting *meeting, const gw_endpoint *mine, int world,
                        gw_time deadline, gw_endpoint *all, gw_error *error);

#endif
