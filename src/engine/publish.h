/* publish.h - one rank decides the order in which pieces are started, and tells the others.
 *
 * Rank 0 of the team appends its decisions to small messages, sent point to point on the team; the others start what
 * they are told, in that order, as soon as they can. A receive is posted only while this rank has something ready that
 * it was not told about, so a job that pauses between steps waits for nothing. Polled; memory is taken when opened. */
#ifndef GW_ENGINE_PUBLISH_H
#define GW_ENGINE_PUBLISH_H

#include "engine/core.h"

typedef struct gw_publisher gw_publisher;

gw_status gw_publisher_open(gw_publisher **publisher, gw_core *core, gw_team *team, gw_error *error);
void gw_publisher_close(gw_publisher *publisher);
bool gw_publisher_leads(const gw_publisher *publisher);
bool gw_publisher_quiet(const gw_publisher *publisher); /* no operation of its own is under way */

/* Rank 0: whether there is room for another decision; that it is made; and that those made so far are to be sent. */
bool gw_publisher_room(const gw_publisher *publisher);
void gw_publisher_decide(gw_publisher *publisher, int piece);
gw_status gw_publisher_send(gw_publisher *publisher, gw_time now, gw_error *error);

/* The others: what is to be started next, -1: not known yet; wanted: ask for more. */
int gw_publisher_next(const gw_publisher *publisher);
void gw_publisher_take(gw_publisher *publisher); /* the next has been started */
gw_status gw_publisher_poll(gw_publisher *publisher, bool wanted, gw_time now, bool *moved, gw_error *error);

#endif
