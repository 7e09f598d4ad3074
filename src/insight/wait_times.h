/* wait_times.h - the waiting of a rank, as summary, matrix and page have it; docs/glossary.md defines the terms.
 *
 * A rank waits while its caller stands in a call that waits for an operation or a tensor. For a part of that time
 * another rank had not begun the operation: that is waiting for ranks. The rest is exposed communication. A wait in
 * another thread than the one that makes the steps counts only where no layer is computed. */
#ifndef GW_INSIGHT_WAIT_TIMES_H
#define GW_INSIGHT_WAIT_TIMES_H

#include "insight/intervals.h"
#include "insight/operations.h"

typedef struct gw_wait_times {
    gw_intervals all, for_ranks; /* joined */
    gw_intervals layers, parts;  /* scratch */
} gw_wait_times;

/* Replaces `waiting` by that of a rank in [low, high). by_rank: NULL, or an entry for each rank, to which the ns of
 * waiting for it are added. False: no memory. */
bool gw_wait_times_find(const gw_insight *insight, const gw_operations *operations, int rank, gw_time low, gw_time high,
                        gw_wait_times *waiting, uint64_t *by_rank);
void gw_wait_times_free(gw_wait_times *waiting);

/* ns that each rank waited for each other in the whole recording: [waiter * ranks + other]. The caller frees it; NULL:
 * no memory. */
uint64_t *gw_wait_times_matrix(const gw_insight *insight, const gw_operations *operations);

#endif
