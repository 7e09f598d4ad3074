/* order.h - in which order rings go around hosts, and which ranks of a host lead it, from what links cost.
 *
 * A ring is as fast as its slowest link, so the order with the least worst link is looked for, and among those the one
 * with the least sum: nearest neighbours first, then segments are turned round and places moved while that helps
 * (2-opt, Croes 1958; Or 1976).
 * The order of ranks is kept unless another one is better by a fifth, so that noise in the figures moves nothing.
 *
 * All ranks come to the same order from the same figures: costs are compared as whole nanoseconds. */
#ifndef GW_ARCH_ORDER_H
#define GW_ARCH_ORDER_H

#include "plan/plan.h"

/* Links between places of a network, as the doctor measured them. */
typedef struct gw_wires {
    int count;           /* of places */
    const double *alpha; /* count * count, seconds; [from * count + to] */
    const double *beta;  /* the same, seconds per byte; 0: the link is not known */
} gw_wires;

/* Around `count` places, cost[from * count + to] ns: order gets every place once, 0 first. scratch: count entries. */
void gw_order_ring(int count, const uint64_t *cost, int *order, int *scratch);

/* What is known of the ranks of a communicator. */
typedef struct gw_order_facts {
    int world;
    const int *host_of;    /* world entries, hosts numbered anyhow below world */
    const gw_wires *wires; /* NULL: nothing was measured */
    const int *place_of;   /* world entries: where in wires a rank is; only where there are some */
} gw_order_facts;

/* Fills world, order, host_of and wire of *topology; order and host_of must have room for world entries. Ranks of a
 * host stand together, those with the better links first, and hosts begin with that of rank 0. */
gw_status gw_order_arrange(const gw_order_facts *facts, int *order, int *host_of, gw_topology *topology,
                           gw_error *error);

#endif
