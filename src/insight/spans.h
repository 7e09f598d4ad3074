/* spans.h - sets of pieces of time. */
#ifndef GW_INSIGHT_SPANS_H
#define GW_INSIGHT_SPANS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/clock.h"

typedef struct gw_span {
    gw_time begin, end;
} gw_span;

typedef struct gw_spans {
    gw_span *list;
    size_t count, room;
    bool no_memory; /* stays set */
} gw_spans;

/* Cut to [low, high); nothing of it there: nothing is added. */
void gw_spans_add(gw_spans *spans, gw_time begin, gw_time end, gw_time low, gw_time high);
/* Sorted and joined: none touches another. */
void gw_spans_join(gw_spans *spans);
gw_time gw_spans_length(const gw_spans *joined);
/* How much of a lies in b too. */
gw_time gw_spans_common(const gw_spans *joined_a, const gw_spans *joined_b);
void gw_spans_clear(gw_spans *spans); /* keeps its memory */
void gw_spans_free(gw_spans *spans);

#endif
