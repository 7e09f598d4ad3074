/* links.h - the traffic of every ordered pair of ranks, and how it was spread over time. */
#ifndef GW_INSIGHT_LINKS_H
#define GW_INSIGHT_LINKS_H

#include "insight/messages.h"

typedef struct gw_link {
    int src, dst;
    uint64_t bytes, messages, retries;
    gw_time busy;    /* ns with a message under way */
    gw_time queued;  /* ns, of all messages together */
    gw_time covered; /* up to when busy has been counted; while it is made */
} gw_link;

typedef struct gw_links {
    gw_link *list; /* only pairs with traffic; by src, then dst */
    size_t count;
    double *bins;  /* count * bin_count: bytes in each piece of time */
    size_t bin_count;
    gw_time bin;   /* ns of one */
} gw_links;

gw_status gw_links_make(const gw_messages *messages, gw_time end, size_t bins, gw_links *links, gw_error *error);
void gw_links_free(gw_links *links);
double gw_link_peak(const gw_links *links, size_t link); /* bytes a second in its fullest piece of time */

#endif
