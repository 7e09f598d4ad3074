/* resume_progress.c - see resume_progress.h. */
#include "reducer/resume_progress.h"

/* One rank. */

size_t gw_rank_progress_bytes(int tensors) { return sizeof(gw_rank_progress) + (size_t)tensors * sizeof(uint64_t); }

static uint64_t digest_of_arrays(const gw_step_engine *step_engine, int tensors) {
    uint64_t digest = 0;
    float *array;
    for (int t = 0; t < tensors; t++)
        for (int which = 0; gw_step_engine_shared(step_engine, t, which, true, &array); which++)
            digest = digest * 31 + (uint64_t)t + 1;
    return digest;
}

void gw_rank_progress_write(gw_rank_progress *progress, const gw_step_engine *step_engine, int tensors, bool fresh) {
    progress->fresh = fresh;
    progress->furthest = gw_step_engine_furthest(step_engine);
    progress->arrays = digest_of_arrays(step_engine, tensors);
    for (int t = 0; t < tensors; t++) progress->reached[t] = gw_step_engine_reached(step_engine, t);
}

/* All ranks. */

static const gw_rank_progress *of(const gw_progress_table *s, int rank) {
    return (const gw_rank_progress *)(const void *)(s->entries + (size_t)rank * gw_rank_progress_bytes(s->tensors));
}

bool gw_progress_table_fresh(const gw_progress_table *s) {
    for (int rank = 0; rank < s->world; rank++)
        if (!of(s, rank)->fresh) return false;
    return true;
}

gw_status gw_progress_table_check(const gw_progress_table *s, gw_error *error) {
    for (int rank = 1; rank < s->world; rank++)
        if (of(s, rank)->arrays != of(s, 0)->arrays)
            return gw_fail(
                error, GW_MISMATCH,
                "the optimisers of rank 0 and rank %d keep different numbers of arrays (gw_reducer_state_fn), "
                "so one cannot be brought to where the other is",
                rank);
    return GW_OK;
}

uint64_t gw_progress_table_newest(const gw_progress_table *s, int tensor) {
    uint64_t step = 0;
    for (int rank = 0; rank < s->world; rank++)
        if (!of(s, rank)->fresh && of(s, rank)->reached[tensor] > step) step = of(s, rank)->reached[tensor];
    return step;
}

bool gw_progress_table_behind(const gw_progress_table *s, int rank, int tensor) {
    return of(s, rank)->fresh || of(s, rank)->reached[tensor] < gw_progress_table_newest(s, tensor);
}

int gw_progress_table_source(const gw_progress_table *s, int tensor) {
    int rank = tensor % s->world;
    while (gw_progress_table_behind(s, rank, tensor)) rank = (rank + 1) % s->world;
    return rank;
}

uint64_t gw_progress_table_next(const gw_progress_table *s) {
    uint64_t next = 0;
    for (int rank = 0; rank < s->world; rank++)
        if (!of(s, rank)->fresh && of(s, rank)->furthest > next) next = of(s, rank)->furthest;
    for (int t = 0; t < s->tensors; t++) /* a rank that was ahead sent this tensor and then died */
        if (gw_progress_table_newest(s, t) > next) next = gw_progress_table_newest(s, t);
    return next;
}
