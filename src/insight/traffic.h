/* traffic.h - the traffic of every ordered pair of ranks, in total and over time. */
#ifndef GW_INSIGHT_TRAFFIC_H
#define GW_INSIGHT_TRAFFIC_H

#include "insight/messages.h"

typedef struct gw_pair_traffic {
    int src, dst;
    uint64_t bytes, messages, retries;
    gw_time busy;    /* ns with a message in flight */
    gw_time queued;  /* ns, sum over all messages */
    gw_time covered; /* end of the time counted in busy so far; only for gw_traffic_make */
} gw_pair_traffic;

typedef struct gw_traffic {
    gw_pair_traffic *list; /* only pairs with traffic; by src, then dst */
    size_t count;
    double *bins; /* count * bin_count: bytes in each time bin */
    size_t bin_count;
    gw_time bin; /* ns per bin */
} gw_traffic;

gw_status gw_traffic_make(const gw_messages *messages, gw_time end, size_t bins, gw_traffic *links, gw_error *error);
void gw_traffic_free(gw_traffic *links);
double gw_traffic_peak(const gw_traffic *links, size_t link); /* bytes per second in its fullest bin */

#endif
