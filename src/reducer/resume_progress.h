/* resume_progress.h - which step each tensor has reached on every rank, after a loss and without servers.
 *
 * An all-reduce is not atomic if a rank dies: one rank may have received and applied a tensor of the interrupted step,
 * another not. But ranks differ by one step at most: a tensor is applied only when all ranks have contributed, and a
 * rank contributes to a step only after it has applied the step before. So ranks compare the steps that their tensors
 * have reached, and a rank that is behind gets the tensor from one that is not: its weights and the optimiser's arrays
 * (gw_step_engine_shared). A restarted rank is behind with all tensors. The next step has the number after the last
 * step that any rank made; a tensor that no rank has applied in that step misses its update. If ranks die during the
 * transfer, each tensor has been received whole or not at all, and ranks compare again. Pure. */
#ifndef GW_REDUCER_RESUME_PROGRESS_H
#define GW_REDUCER_RESUME_PROGRESS_H

#include "reducer/step_engine.h"

/* One rank's progress. Sent as it is. */
typedef struct gw_rank_progress {
    uint64_t fresh;     /* 1: it has just started */
    uint64_t furthest;  /* one more than the last step it made */
    uint64_t arrays;    /* digest of the number of optimiser's arrays: must be the same on all ranks */
    uint64_t reached[]; /* of each tensor: gw_step_engine_reached */
} gw_rank_progress;

typedef struct gw_progress_table {
    int world, tensors;
    uint8_t *entries; /* gw_rank_progress_bytes each */
} gw_progress_table;

size_t gw_rank_progress_bytes(int tensors);
void gw_rank_progress_write(gw_rank_progress *progress, const gw_step_engine *step_engine, int tensors, bool fresh);

/* All ranks have just started: there is nothing to compare. */
bool gw_progress_table_fresh(const gw_progress_table *table);
/* GW_MISMATCH: optimisers keep different numbers of arrays. */
gw_status gw_progress_table_check(const gw_progress_table *table, gw_error *error);
/* newest: the step that the tensor has to reach. behind: true if that rank has not reached it. source: a rank that has
 * reached it; it differs from tensor to tensor, so that no link has to send all of them. */
uint64_t gw_progress_table_newest(const gw_progress_table *table, int tensor);
bool gw_progress_table_behind(const gw_progress_table *table, int rank, int tensor);
int gw_progress_table_source(const gw_progress_table *table, int tensor);
uint64_t gw_progress_table_next(const gw_progress_table *table); /* the number of the next step */

#endif
