/* start_order.h - one start order of buckets for all ranks, for schedules that reorder (as Horovod's coordinator does).
 *
 * Rank 0 of the team decides and sends small messages with its decisions, point to point on the team. The others start
 * buckets in that order, as soon as they are ready. A rank posts a receive only while it has a ready bucket that is not
 * in the order yet, so none is pending while a job pauses between steps. Polled; open allocates all memory. */
#ifndef GW_REDUCER_START_ORDER_H
#define GW_REDUCER_START_ORDER_H

#include "engine/rank_core.h"

typedef struct gw_start_order gw_start_order;

gw_status gw_start_order_open(gw_start_order **start_order, gw_core *core, gw_team *team, gw_error *error);
void gw_start_order_close(gw_start_order *start_order);
bool gw_start_order_leads(const gw_start_order *start_order); /* this rank decides */
bool gw_start_order_quiet(const gw_start_order *start_order); /* no operation of its own is in flight */

/* Rank 0. has_space: a message has space for another decision. decide: adds a decision. send: sends the decisions made
 * so far. */
bool gw_start_order_has_space(const gw_start_order *start_order);
void gw_start_order_decide(gw_start_order *start_order, int bucket);
gw_status gw_start_order_send(gw_start_order *start_order, gw_time now, gw_error *error);

/* The others. next: the bucket to start next, -1: not known yet. poll: receives more decisions if wanted. */
int gw_start_order_next(const gw_start_order *start_order);
void gw_start_order_take(gw_start_order *start_order); /* the next has been started */
gw_status gw_start_order_poll(gw_start_order *start_order, bool wanted, gw_time now, bool *moved, gw_error *error);

#endif
