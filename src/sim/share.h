/* share.h - links that flows share max-min fairly: no flow can have more without another, that has no more than it,
 * having less (progressive filling, Bertsekas and Gallager 1992).
 *
 * A flow has a way of links and moves one load at a time; what has been loaded is reported when it is over, and the
 * flow may be loaded again from there without the others noticing. Rates are settled once for each moment, and only for
 * the flows that are connected by shared links with those that came or went.
 *
 * A link's rate is bytes per second; cores can be links as well, their bytes being work. A link may be a token bucket,
 * as shapers make it: what it did not carry while it was idle, up to its burst, passes at once. */
#ifndef GW_SIM_SHARE_H
#define GW_SIM_SHARE_H

#include "base/status.h"
#include "sim/events.h"

#define GW_WAY_MAX 520 /* links of a flow */

typedef struct gw_flow_net gw_flow_net;
typedef struct gw_flow_line gw_flow_line; /* an active flow, on one of its links */

typedef struct gw_net_flow gw_net_flow;
typedef void gw_net_flow_fn(gw_net_flow *flow, void *ctx);

struct gw_net_flow {
    gw_event over;        /* the load's end; first, so that the event is the flow */
    gw_flow_net *net;
    gw_net_flow_fn *done; /* the load is over; may load the flow again */
    double left;          /* bytes at `since` */
    double since;         /* seconds */
    double rate;          /* bytes per second; 0: not settled yet, or nothing loaded */
    double full_rate;     /* that of the slowest link of its way */
    gw_flow_line *lines;  /* one for each link of its way, owned by the net */
    int hops;
    bool loaded, active;  /* active: on its links */
    bool fixed;           /* scratch of settling */
    uint64_t visited;     /* scratch of settling */
};

gw_status gw_flow_net_open(gw_flow_net **net, gw_events *events, const double *rates, int links, gw_error *error);
void gw_flow_net_close(gw_flow_net *net); /* NULL is fine; flows lose their ways */
/* Bytes that a link may carry at once after it was idle; the bucket is full. 0, which it is at first: none. */
void gw_flow_net_burst(gw_flow_net *net, int link, double bytes);

/* Gives a flow its way; `flow` is the caller's memory and outlives the net. No links: bytes take no time. */
gw_status gw_net_flow_init(gw_flow_net *net, gw_net_flow *flow, const int *way, int hops, gw_net_flow_fn *done,
                           gw_error *error);
/* Loads a flow that has nothing loaded (or from within its done). */
void gw_net_flow_load(gw_net_flow *flow, double bytes);
/* Seconds that what other flows have loaded takes on the link of its way where that is longest; of each link at most so
 * many bytes are looked at. */
double gw_net_flow_behind(const gw_net_flow *flow, double most);
/* Settles the rates of what came or went; to be called when everything of a moment has happened, before the next. */
void gw_flow_net_settle(gw_flow_net *net);

/* Bytes that a link has carried up to now. */
double gw_flow_net_carried(const gw_flow_net *net, int link);

#endif
