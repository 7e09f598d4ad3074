/* wait_times.h - the waiting of all ranks, as summary, matrix and page have it. Its terms: docs/reference/glossary.md.
 *
 * A rank waits while its caller stands in a call that waits for an operation or a tensor. It waits for ranks where the
 * rank that began the operation last had not begun it yet, and did not wait itself: a rank that waits is not what holds
 * the others up. The rest is exposed communication. A wait in another thread than the one that makes the steps counts
 * only where no layer is computed. */
#ifndef GW_INSIGHT_WAIT_TIMES_H
#define GW_INSIGHT_WAIT_TIMES_H

#include "insight/intervals.h"
#include "insight/operations.h"

typedef struct gw_wait_times {
    int ranks;
    gw_intervals *all, *for_ranks; /* by rank, joined; for_ranks is a part of all */
    uint64_t *matrix;              /* ns of waiting for a rank: [waiter * ranks + other] */
} gw_wait_times;

gw_status gw_wait_times_make(const gw_insight *insight, const gw_operations *operations, gw_wait_times *times,
                             gw_error *error);
void gw_wait_times_free(gw_wait_times *times);

#endif
