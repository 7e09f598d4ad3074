/* start_order.h - one start order of buckets for all ranks, for schedules that reorder (as Horovod's coordinator does).
 *
 * Rank 0 of the team decides and sends small messages with its decisions, point to point on the team; each rank passes
 * them on to its children in a tree, leaders of hosts first. Ranks start buckets in that order, as soon as these are
 * ready. A rank posts a receive only while it has a ready bucket that is not in the order yet, so none is pending while
 * a job pauses between steps. Until then the ranks below it lack the order too; they could not finish without it
 * anyway. Polled; open allocates all memory. */
#ifndef GW_REDUCER_START_ORDER_H
#define GW_REDUCER_START_ORDER_H

#include "engine/rank_core.h"

typedef struct gw_start_order gw_start_order;

gw_status gw_start_order_open(gw_start_order **start_order, gw_core *core, gw_team *team, gw_error *error);
void gw_start_order_close(gw_start_order *start_order);
bool gw_start_order_leads(const gw_start_order *start_order); /* this rank decides */
bool gw_start_order_quiet(const gw_start_order *start_order); /* no operation of its own is in flight */

/* Sends what is to be sent; receives, if wanted, and passes on. */
gw_status gw_start_order_poll(gw_start_order *start_order, bool wanted, gw_time now, bool *moved, gw_error *error);

/* Rank 0. has_space: a message has space for another decision. decide: adds a decision; the next poll sends it. */
bool gw_start_order_has_space(const gw_start_order *start_order);
void gw_start_order_decide(gw_start_order *start_order, int bucket);

/* The others. next: the bucket to start next, -1: not known yet. */
int gw_start_order_next(const gw_start_order *start_order);
void gw_start_order_take(gw_start_order *start_order); /* the next has been started */

#endif
