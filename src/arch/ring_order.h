/* ring_order.h - from the costs of links: the order in which rings go around the hosts, and which ranks lead each host.
 *
 * A ring is as fast as its slowest link. The search looks for the order whose worst link is cheapest, and among those
 * for the least sum: it begins with nearest neighbours, then reverses runs of places and moves single places while that
 * helps (2-opt, Croes 1958; Or 1976). The order of ranks is kept unless another one is better by a fifth, so that noise
 * in the figures changes nothing.
 *
 * All ranks compute the same order from the same figures: costs are compared as whole nanoseconds. */
#ifndef GW_ARCH_RING_ORDER_H
#define GW_ARCH_RING_ORDER_H

#include "plan/plan.h"

/* Links between the places of a network (the hosts of the link file), as gradwire doctor measured them. */
typedef struct gw_link_costs {
    int count;           /* of places */
    const double *alpha; /* count * count, seconds; [from * count + to] */
    const double *beta;  /* the same, seconds per byte; 0: the link is not known */
} gw_link_costs;

/* A ring around `count` places, where cost[from * count + to] is in ns: order gets every place once, 0 first. scratch:
 * count entries. */
void gw_ring_order_ring(int count, const uint64_t *cost, int *order, int *scratch);

/* What is known of the ranks of a communicator. */
typedef struct gw_ring_order_facts {
    int world;
    const int *host_of;         /* world entries; hosts have any numbers below world */
    const gw_link_costs *wires; /* NULL: nothing was measured */
    const int *place_of;        /* world entries: the place of a rank in wires; only if wires is not NULL */
} gw_ring_order_facts;

/* Fills world, order, host_of and wire of *topology; order and host_of must have room for world entries. The ranks of a
 * host are adjacent, those with the better links first; the host of rank 0 comes first. */
gw_status gw_ring_order_fill(const gw_ring_order_facts *facts, int *order, int *host_of, gw_topology *topology,
                             gw_error *error);

#endif
