/* operations.h - collectives over all ranks: the rank that began last kept the others waiting. */
#ifndef GW_INSIGHT_OPERATIONS_H
#define GW_INSIGHT_OPERATIONS_H

#include "insight/capture_index.h"

typedef struct gw_operation {
    uint32_t comm, name;
    uint64_t number, bytes;
    gw_time first_begin, last_begin, end; /* first and last begin, last end, over the ranks */
    int last_rank;                        /* the rank that began last */
    int ranks;                            /* how many recorded it */
    size_t at;                            /* its events: gw_operations.events[at .. at + ranks), by rank */
} gw_operation;

typedef struct gw_operations {
    gw_operation *list; /* by comm, then number */
    size_t count;
    const gw_insight_event **events;
    const gw_insight_event **ended; /* the same, by rank, then end */
    size_t event_count;
} gw_operations;

/* Point-to-point operations are left out: the two ranks wait only for each other. */
gw_status gw_operations_make(const gw_insight *insight, gw_operations *operations, gw_error *error);
void gw_operations_free(gw_operations *operations);
/* NULL: not recorded. */
const gw_operation *gw_operations_find(const gw_operations *operations, uint32_t comm, uint64_t number);
/* The operation that a rank waited for: the one that the wait names. A wait for a tensor may include several
 * operations: then the last one that ended during the wait, and no later than `by`. NULL: unknown. */
const gw_operation *gw_operations_awaited(const gw_operations *operations, int rank, const gw_trace_event *wait,
                                          gw_time by);
/* When that rank began it; false: not recorded. */
bool gw_operation_begun(const gw_operations *operations, const gw_operation *operation, int rank, gw_time *begin);

#endif
