/* catch_up.c - after a loss, without servers: brings the tensors of all ranks to the same step. A rank whose tensor is
 * behind receives it from one that is ahead. See resume_progress.h. */
#include <stdlib.h>
#include <string.h>

#include "reducer/reducer_internal.h"
#include "reducer/resume_progress.h"

typedef struct catch_up_state {
    gw_reducer *reducer;
    gw_comm *comm; /* only for this transfer */
    gw_progress_table progress;
} catch_up_state;

static gw_status gather_progress(catch_up_state *c, gw_error *error) {
    size_t entry = gw_rank_progress_bytes(c->reducer->count), size = (size_t)c->comm->size;
    gw_rank_progress *mine = malloc(entry);
    uint8_t *all = malloc(entry * size);
    gw_status status = mine && all ? GW_OK : gw_fail(error, GW_MEMORY, "out of memory for the progress of tensors");
    if (!status) {
        gw_rank_progress_write(mine, c->reducer->step_engine, c->reducer->count, c->reducer->fresh);
        status = gw_reducer_copy_last_error(gw_allgather(c->comm, mine, all, entry, GW_U8), error);
    }
    free(mine);
    c->progress = (gw_progress_table){.world = c->comm->size, .tensors = c->reducer->count, .entries = all};
    return status;
}

static gw_status send_tensor(catch_up_state *c, int tensor, int to, gw_error *error) {
    const gw_step_engine *step_engine = c->reducer->step_engine;
    gw_status status = GW_OK;
    float *array;
    size_t count;
    for (int which = 0; !status && (count = gw_step_engine_shared(step_engine, tensor, which, true, &array)) > 0;
         which++)
        status = gw_reducer_copy_last_error(gw_send(c->comm, array, count, GW_F32, to), error);
    return status;
}

/* The sender may die halfway, so arrays are staged until all are there: a tensor never has arrays of two steps. */
static gw_status receive_tensor(catch_up_state *c, int tensor, int from, gw_error *error) {
    const gw_step_engine *step_engine = c->reducer->step_engine;
    gw_status status = GW_OK;
    float *array;
    size_t count, total = 0, at = 0;
    for (int which = 0; (count = gw_step_engine_shared(step_engine, tensor, which, false, &array)) > 0; which++)
        total += count;
    float *staging = malloc((total + 1) * sizeof *staging);
    if (!staging) return gw_fail(error, GW_MEMORY, "out of memory for the %zu numbers of a tensor", total);
    for (int which = 0; !status && (count = gw_step_engine_shared(step_engine, tensor, which, false, &array)) > 0;
         which++) {
        status = gw_reducer_copy_last_error(gw_recv(c->comm, staging + at, count, GW_F32, from), error);
        at += count;
    }
    at = 0;
    for (int which = 0; !status && (count = gw_step_engine_shared(step_engine, tensor, which, false, &array)) > 0;
         which++) {
        memcpy(array, staging + at, count * sizeof *array);
        at += count;
    }
    free(staging);
    if (!status)
        gw_step_engine_caught_up(c->reducer->step_engine, tensor, gw_progress_table_newest(&c->progress, tensor));
    return status;
}

/* All ranks go through the tensors in the same order, so sends and receives cannot deadlock. */
static gw_status equalize(catch_up_state *c, int tensor, gw_error *error) {
    const gw_progress_table *s = &c->progress;
    int source = gw_progress_table_source(s, tensor), me = c->comm->rank;
    gw_status status = GW_OK;
    for (int rank = 0; !status && rank < s->world; rank++) {
        if (!gw_progress_table_behind(s, rank, tensor)) continue;
        if (me == source) status = send_tensor(c, tensor, rank, error);
        if (me == rank) status = receive_tensor(c, tensor, source, error);
    }
    return status;
}

static gw_status catch_up(catch_up_state *c, gw_error *error) {
    gw_reducer *reducer = c->reducer;
    gw_status status = gather_progress(c, error);
    if (status || gw_progress_table_fresh(&c->progress)) return status;
    status = gw_progress_table_check(&c->progress, error);
    for (int t = 0; !status && t < reducer->count; t++) status = equalize(c, t, error);
    if (status) return status;
    reducer->next_step = gw_progress_table_next(&c->progress);
    if (reducer->fresh) reducer->first_step = reducer->next_step;
    gw_step_engine_begin_at(reducer->step_engine, reducer->next_step);
    return GW_OK;
}

gw_status gw_reducer_catch_up(gw_reducer *reducer, gw_error *error) {
    catch_up_state c = {.reducer = reducer};
    if (reducer->fresh && reducer->comm->context->job_env.generation == 0) return GW_OK; /* no rank has made a step */
    gw_status status = gw_reducer_copy_last_error(gw_comm_split(reducer->comm, 0, reducer->comm->rank, &c.comm), error);
    if (!status) status = catch_up(&c, error);
    free(c.progress.entries);
    gw_finalize(c.comm);
    return status;
}
