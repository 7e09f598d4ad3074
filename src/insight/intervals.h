/* intervals.h - sets of time intervals. */
#ifndef GW_INSIGHT_INTERVALS_H
#define GW_INSIGHT_INTERVALS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/clock.h"

typedef struct gw_interval {
    gw_time begin, end;
} gw_interval;

typedef struct gw_intervals {
    gw_interval *list;
    size_t count, capacity;
    bool no_memory; /* stays set */
} gw_intervals;

/* Adds the part within [low, high), if any. */
void gw_intervals_add(gw_intervals *intervals, gw_time begin, gw_time end, gw_time low, gw_time high);
/* Sorts, and merges intervals that overlap or touch. */
void gw_intervals_join(gw_intervals *intervals);
gw_time gw_intervals_length(const gw_intervals *joined);
/* Adds the intervals of another set; of a joined one, the parts within [low, high). */
void gw_intervals_append(gw_intervals *intervals, const gw_intervals *others);
void gw_intervals_append_within(gw_intervals *intervals, const gw_intervals *joined, gw_time low, gw_time high);
/* Leaves what the joined set does not cover. */
void gw_intervals_subtract(gw_intervals *intervals, const gw_intervals *joined);
/* Length of the intersection. */
gw_time gw_intervals_common(const gw_intervals *joined_a, const gw_intervals *joined_b);
void gw_intervals_clear(gw_intervals *intervals); /* keeps its memory */
void gw_intervals_free(gw_intervals *intervals);

#endif
