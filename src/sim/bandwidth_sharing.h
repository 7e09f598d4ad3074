/* bandwidth_sharing.h - flows share the bandwidth of links max-min fairly: no flow can get a higher rate without
 * lowering the rate of a flow that is not faster (progressive filling, Bertsekas and Gallager 1992).
 *
 * A flow has a route of links and moves one load at a time. It reports the end of a load by a callback. The callback
 * may load the flow again, which does not change the rates of other flows. Rates are settled once per point in time,
 * and only for flows that are connected through shared links with those that started or ended.
 *
 * A link's rate is bytes per second; a core can be a link too, with work as its bytes. A link may be a token bucket, as
 * a traffic shaper is: after idle time, up to `burst` bytes pass at once. */
#ifndef GW_SIM_BANDWIDTH_SHARING_H
#define GW_SIM_BANDWIDTH_SHARING_H

#include "base/status.h"
#include "sim/events.h"

#define GW_ROUTE_LINKS_MAX 520 /* links of a flow */

typedef struct gw_flow_net gw_flow_net;
typedef struct gw_flow_line gw_flow_line; /* an active flow, on one of its links */

typedef struct gw_net_flow gw_net_flow;
typedef void gw_net_flow_fn(gw_net_flow *flow, void *ctx);

struct gw_net_flow {
    gw_event over; /* end of the load; first member: a pointer to it is one to the flow */
    gw_flow_net *net;
    gw_net_flow_fn *done; /* the load has ended; may load the flow again */
    double left;          /* bytes left at `since` */
    double since;         /* seconds */
    double rate;          /* bytes per second; 0: not settled yet, or no load */
    double full_rate;     /* rate of the slowest link of its route */
    gw_flow_line *lines;  /* one per link of its route, owned by the net */
    int hops;             /* links of its route */
    bool loaded, active;  /* active: in the lists of its links */
    bool fixed;           /* scratch of settling */
    uint64_t visited;     /* scratch of settling */
};

gw_status gw_flow_net_open(gw_flow_net **net, gw_events *events, const double *rates, int links, gw_error *error);
void gw_flow_net_close(gw_flow_net *net); /* NULL is fine; flows lose their routes */
/* Makes a link a token bucket of this size, full at the start. 0, the default: no token bucket. */
void gw_flow_net_burst(gw_flow_net *net, int link, double bytes);

/* Initializes a flow with its route; the caller owns `flow`, which outlives the net. No links: bytes take no time. */
gw_status gw_net_flow_init(gw_flow_net *net, gw_net_flow *flow, const int *route, int hops, gw_net_flow_fn *done,
                           gw_error *error);
/* Loads a flow that has no load; also from within its done callback. */
void gw_net_flow_load(gw_net_flow *flow, double bytes);
/* Seconds that the remaining bytes of other flows take on a link, the maximum over the links of the route. At most
 * `most` bytes count for each link. */
double gw_net_flow_queue_seconds(const gw_net_flow *flow, double most);
/* Settles the rates after flows started or ended; call it after the last event of a point in time. */
void gw_flow_net_settle(gw_flow_net *net);

/* Bytes that a link has carried up to now. */
double gw_flow_net_carried(const gw_flow_net *net, int link);

#endif
