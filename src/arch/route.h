/* route.h - how a bucket travels: hops towards the owners of its elements, and back. A pure function of the strategy
 * and of where the ranks are; the step engine carries it out, hop by hop, and explain prints it.
 *
 * Neighbouring hops that are neither coded nor started apart are one hop, whose plan interleaves them: an exact
 * all-reduce is a single hop for every architecture. */
#ifndef GW_ARCH_ROUTE_H
#define GW_ARCH_ROUTE_H

#include "plan/plan.h"

typedef enum gw_hop_group {
    GW_GROUP_ALL,     /* all ranks */
    GW_GROUP_HOST,    /* the ranks of a host */
    GW_GROUP_RACK,    /* one rank of each host of a rack */
    GW_GROUP_LANE,    /* one rank of each host, or of each rack if these are known (owners.h) */
    GW_GROUP_SERVERS, /* a rank and its parameter servers */
} gw_hop_group;

typedef enum gw_hop_kind {
    GW_HOP_ALLREDUCE,
    GW_HOP_REDUCE_SCATTER,
    GW_HOP_ALLGATHER,
    GW_HOP_REDUCE,       /* to the first rank, which owns everything */
    GW_HOP_BROADCAST,    /* from it */
    GW_HOP_CODED,        /* both halves of an exchange through a codec (reducer/coded_exchange.h) */
    GW_HOP_CODED_FIRST,  /* until owners have the sums */
    GW_HOP_CODED_SECOND, /* from then on */
    GW_HOP_PUSH_PULL,
    GW_HOP_FACTORS, /* all-gather of sufficient factors, which every rank multiplies */
} gw_hop_kind;

typedef struct gw_hop {
    gw_hop_group group;
    gw_hop_kind kind;
    bool second; /* it belongs to the second half, which a schedule may start apart */
} gw_hop;

#define GW_HOPS_MAX 6

typedef struct gw_route {
    gw_hop hops[GW_HOPS_MAX];
    int count;     /* 0: a rank without peers, whose values are the result */
    bool flat;     /* lanes: one, of all ranks */
    bool in_lanes; /* ranks of a host combine first, and then those of a lane */
    bool coded;
} gw_route;

typedef struct gw_route_request {
    const char *arch; /* of the strategy line */
    const gw_topology *topology;
    bool codec;        /* the strategy has one, and it can encode this bucket */
    bool splits;       /* the schedule starts the two halves apart */
    bool sums_in_type; /* partial sums of its type lose nothing that the result would keep (f32, f64) */
    bool servers, factors;
} gw_route_request;

gw_route gw_route_of(const gw_route_request *request);
/* Hops of different buckets overlap, those of one bucket do not: tensors with more bytes than this are cut. 0: the
 * route is one plan in each half, which pipelines by itself. */
size_t gw_route_piece_bytes(const gw_route *route);
gw_collective gw_hop_collective(gw_hop_kind kind); /* of a dense hop */
/* "reduce-scatter in each host"; returns text. */
const char *gw_hop_text(const gw_route *route, int hop, char *text, size_t size);

#endif
