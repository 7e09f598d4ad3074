/* totals.h - total bytes and time for each kind of event, or for each kind and name. */
#ifndef GW_INSIGHT_TOTALS_H
#define GW_INSIGHT_TOTALS_H

#include "insight/capture_index.h"

typedef struct gw_total {
    gw_trace_kind kind;
    uint32_t name; /* 0 in totals by kind */
    uint64_t count, bytes;
    gw_time time, longest; /* ns: sum over all ranks; longest single event */
} gw_total;

typedef struct gw_totals {
    gw_total *list; /* by kind, then most time first */
    size_t count;
} gw_totals;

/* by_name false: one total for each kind. */
gw_status gw_totals_make(const gw_insight *insight, bool by_name, gw_totals *totals, gw_error *error);
void gw_totals_free(gw_totals *totals);

#endif
