/* step_catch_up.c - after a loss, without servers. An all-reduce is not atomic under a death: one rank may have
 * received and applied a tensor of the interrupted step, another not. But nobody can be further apart: a tensor is
 * applied only when all ranks have given their part, and a rank gives its part of a step only after it has applied the
 * step before. So members compare the steps that their tensors have reached, and whoever is behind gets the tensor
 * from a rank that is not: its weights and the optimiser's arrays. A rank that came anew is behind with all of them.
 * The next step has the number after the furthest that anybody made; a tensor that nobody has applied in it misses
 * that update. */
#include <stdlib.h>
#include <string.h>

#include "engine/step.h"

/* What a rank says of itself; then where each of its tensors stands. Goes over the wire as it is. */
typedef struct standing {
    uint64_t fresh;    /* 1: it came anew */
    uint64_t furthest; /* the step after the last that it made */
    uint64_t arrays;   /* a sum over what its optimiser keeps: has to be the same on all ranks */
} standing;

typedef struct roster {
    gw_step *step;
    gw_comm *comm;    /* for this alone */
    size_t entry;     /* bytes that a rank says */
    uint8_t *entries; /* of all ranks */
} roster;

static const standing *standing_of(const roster *r, int rank) {
    return (const standing *)(const void *)(r->entries + (size_t)rank * r->entry);
}

static uint64_t reached(const roster *r, int rank, int tensor) {
    const uint64_t *all = (const uint64_t *)(const void *)(standing_of(r, rank) + 1);
    return all[tensor];
}

/* The step that the tensor has to stand at. false: nobody has ever stood anywhere. */
static bool newest(const roster *r, int tensor, uint64_t *step) {
    bool any = false;
    *step = 0;
    for (int rank = 0; rank < r->comm->size; rank++) {
        if (standing_of(r, rank)->fresh) continue;
        if (!any || reached(r, rank, tensor) > *step) *step = reached(r, rank, tensor);
        any = true;
    }
    return any;
}

static bool behind(const roster *r, int rank, int tensor, uint64_t step) {
    return standing_of(r, rank)->fresh || reached(r, rank, tensor) < step;
}

/* Tensors come from different ranks, so that no link carries all of them. */
static int source_of(const roster *r, int tensor, uint64_t step) {
    for (int i = 0; i < r->comm->size; i++) {
        int rank = (tensor + i) % r->comm->size;
        if (!behind(r, rank, tensor, step)) return rank;
    }
    return -1;
}

/* Telling. */

static uint64_t sum_of_arrays(const gw_step *step) {
    uint64_t sum = 0;
    float *array;
    for (int t = 0; t < step->count; t++)
        for (int which = 0; gw_stepper_shared(step->stepper, t, which, true, &array); which++)
            sum = sum * 31 + (uint64_t)t + 1;
    return sum;
}

static gw_status tell(roster *r, gw_error *error) {
    const gw_step *step = r->step;
    size_t size = (size_t)r->comm->size;
    r->entry = sizeof(standing) + (size_t)step->count * sizeof(uint64_t);
    r->entries = malloc(r->entry * (size + 1));
    if (!r->entries) return gw_fail(error, GW_MEMORY, "out of memory for where the tensors of %zu ranks stand", size);
    uint8_t *mine = r->entries + r->entry * size;
    standing own = {.fresh = step->fresh, .furthest = gw_stepper_furthest(step->stepper),
                    .arrays = sum_of_arrays(step)};
    memcpy(mine, &own, sizeof own);
    for (int t = 0; t < step->count; t++) {
        uint64_t at = gw_stepper_reached(step->stepper, t);
        memcpy(mine + sizeof own + (size_t)t * sizeof at, &at, sizeof at);
    }
    return gw_step_heard(gw_allgather(r->comm, mine, r->entries, r->entry, GW_U8), error);
}

/* Giving and taking. */

static gw_status give(roster *r, int tensor, int to, gw_error *error) {
    gw_status status = GW_OK;
    float *array;
    size_t count;
    for (int which = 0; !status && (count = gw_stepper_shared(r->step->stepper, tensor, which, true, &array)); which++)
        status = gw_step_heard(gw_send(r->comm, array, count, GW_F32, to), error);
    return status;
}

static gw_status take(roster *r, int tensor, int from, gw_error *error) {
    gw_status status = GW_OK;
    float *array;
    size_t count;
    for (int which = 0; !status && (count = gw_stepper_shared(r->step->stepper, tensor, which, false, &array)); which++)
        status = gw_step_heard(gw_recv(r->comm, array, count, GW_F32, from), error);
    return status;
}

/* All ranks go through the tensors in the same order, so nobody waits for somebody who waits for it. */
static gw_status pass_on(roster *r, int tensor, gw_error *error) {
    uint64_t step;
    gw_status status = GW_OK;
    if (!newest(r, tensor, &step)) return GW_OK;
    int source = source_of(r, tensor, step), me = r->comm->rank;
    for (int rank = 0; !status && rank < r->comm->size; rank++) {
        if (!behind(r, rank, tensor, step)) continue;
        if (me == source) status = give(r, tensor, rank, error);
        if (me == rank) status = take(r, tensor, source, error);
    }
    if (!status && behind(r, me, tensor, step)) gw_stepper_caught_up(r->step->stepper, tensor, step);
    return status;
}

static gw_status check_alike(const roster *r, gw_error *error) {
    for (int rank = 1; rank < r->comm->size; rank++)
        if (standing_of(r, rank)->arrays != standing_of(r, 0)->arrays)
            return gw_fail(error, GW_MISMATCH,
                           "the optimisers of rank 0 and rank %d keep different numbers of arrays (gw_step_state_fn), "
                           "so one cannot be brought to where the other is",
                           rank);
    return GW_OK;
}

static void agree_on_next(const roster *r) {
    gw_step *step = r->step;
    uint64_t next = 0;
    for (int rank = 0; rank < r->comm->size; rank++) {
        const standing *s = standing_of(r, rank);
        if (!s->fresh && s->furthest > next) next = s->furthest;
    }
    if (step->fresh) step->first = next;
    step->next = next;
    gw_stepper_begin_at(step->stepper, next);
}

static gw_status catch_up(roster *r, gw_error *error) {
    bool met = false;
    gw_status status = tell(r, error);
    for (int rank = 0; !status && rank < r->comm->size; rank++) met |= !standing_of(r, rank)->fresh;
    if (status || !met) return status; /* all are as they were given */
    status = check_alike(r, error);
    for (int t = 0; !status && t < r->step->count; t++) status = pass_on(r, t, error);
    if (!status) agree_on_next(r);
    return status;
}

gw_status gw_step_catch_up(gw_step *step, gw_error *error) {
    roster r = {.step = step};
    if (step->fresh && step->comm->node->place.round == 0) return GW_OK; /* nobody was there before */
    gw_status status = gw_step_heard(gw_comm_split(step->comm, 0, step->comm->rank, &r.comm), error);
    if (!status) status = catch_up(&r, error);
    free(r.entries);
    gw_finalize(r.comm);
    return status;
}
