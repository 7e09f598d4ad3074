/* stripes.h - a set of elements at regular distances: the first `length` of every `period` elements, counted from
 * `shift` elements before `first`, as far as they are in [first, end). What one rank owns of a tensor is such a set.
 * Pure. */
#ifndef GW_BASE_STRIPES_H
#define GW_BASE_STRIPES_H

#include <stdbool.h>
#include <stdint.h>

typedef struct gw_stripes {
    uint64_t first, end;     /* elements; end <= first: none */
    uint64_t length, period; /* elements; 0 < length <= period. Equal: all from first to end */
    uint64_t shift;          /* elements; below period */
} gw_stripes;

/* All elements in [first, end). */
gw_stripes gw_stripes_whole(uint64_t first, uint64_t end);
/* How many elements of the set are below `element`: the place of an element in an array that holds only the set. */
uint64_t gw_stripes_place(const gw_stripes *set, uint64_t element);
uint64_t gw_stripes_count(const gw_stripes *set);
/* The first run of neighbouring elements at or after *from and before `to`: [*from, *from + *count). False: none. A run
 * never goes beyond one stripe. */
bool gw_stripes_next(const gw_stripes *set, uint64_t *from, uint64_t to, uint64_t *count);
/* True if all of these elements are in one stripe of the set. */
bool gw_stripes_cover(const gw_stripes *set, uint64_t first, uint64_t count);

#endif
