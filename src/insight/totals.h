/* totals.h - bytes and time by what they were spent on: one line for each kind of event, and for each name of it. */
#ifndef GW_INSIGHT_TOTALS_H
#define GW_INSIGHT_TOTALS_H

#include "insight/insight.h"

typedef struct gw_total {
    gw_trace_kind kind;
    uint32_t name;  /* 0 in totals by kind */
    uint64_t count, bytes;
    gw_time time, longest; /* ns, of all ranks together; of one event */
} gw_total;

typedef struct gw_totals {
    gw_total *list; /* by kind, then most time first */
    size_t count;
} gw_totals;

/* by_name false: one for each kind. */
gw_status gw_totals_make(const gw_insight *insight, bool by_name, gw_totals *totals, gw_error *error);
void gw_totals_free(gw_totals *totals);

#endif
