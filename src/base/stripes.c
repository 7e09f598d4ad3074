/* stripes.c - see stripes.h. */
#include "base/stripes.h"

static uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }

gw_stripes gw_stripes_whole(uint64_t first, uint64_t end) {
    uint64_t length = end > first ? end - first : 1;
    return (gw_stripes){.first = first, .end = end, .length = length, .period = length};
}

uint64_t gw_stripes_place(const gw_stripes *set, uint64_t element) {
    uint64_t to = least(element, set->end);
    if (to <= set->first) return 0;
    uint64_t offset = to - set->first + set->shift;
    return offset / set->period * set->length + least(offset % set->period, set->length) -
           least(set->shift, set->length);
}

uint64_t gw_stripes_count(const gw_stripes *set) { return gw_stripes_place(set, set->end); }

bool gw_stripes_next(const gw_stripes *set, uint64_t *from, uint64_t to, uint64_t *count) {
    to = least(to, set->end);
    if (*from < set->first) *from = set->first;
    uint64_t within = (*from - set->first + set->shift) % set->period;
    if (within >= set->length) {
        *from += set->period - within;
        within = 0;
    }
    if (*from >= to) return false;
    *count = least(set->length - within, to - *from);
    return true;
}

bool gw_stripes_cover(const gw_stripes *set, uint64_t first, uint64_t count) {
    uint64_t from = first, run;
    if (count == 0) return true;
    return gw_stripes_next(set, &from, first + count, &run) && from == first && run == count;
}
