/* step_catch_up.c - ranks that come together after a loss, without servers, bring their tensors to the same step: what
 * is behind is sent by a rank that is not. See standing.h. */
#include <stdlib.h>
#include <string.h>

#include "engine/standing.h"
#include "engine/step.h"

typedef struct meeting {
    gw_step *step;
    gw_comm *comm; /* for this alone */
    gw_standings standings;
} meeting;

static gw_status tell(meeting *m, gw_error *error) {
    size_t entry = gw_standing_bytes(m->step->count), size = (size_t)m->comm->size;
    gw_standing *mine = malloc(entry);
    uint8_t *all = malloc(entry * size);
    gw_status status = mine && all ? GW_OK : gw_fail(error, GW_MEMORY, "out of memory for where tensors stand");
    if (!status) {
        gw_standing_write(mine, m->step->stepper, m->step->count, m->step->fresh);
        status = gw_step_heard(gw_allgather(m->comm, mine, all, entry, GW_U8), error);
    }
    free(mine);
    m->standings = (gw_standings){.world = m->comm->size, .tensors = m->step->count, .entries = all};
    return status;
}

static gw_status give(meeting *m, int tensor, int to, gw_error *error) {
    const gw_stepper *stepper = m->step->stepper;
    gw_status status = GW_OK;
    float *array;
    size_t count;
    for (int which = 0; !status && (count = gw_stepper_shared(stepper, tensor, which, true, &array)) > 0; which++)
        status = gw_step_heard(gw_send(m->comm, array, count, GW_F32, to), error);
    return status;
}

/* The giver may die in the middle, so arrays come into memory aside until all are there: a tensor is never torn. */
static gw_status take(meeting *m, int tensor, int from, gw_error *error) {
    const gw_stepper *stepper = m->step->stepper;
    gw_status status = GW_OK;
    float *array;
    size_t count, total = 0, at = 0;
    for (int which = 0; (count = gw_stepper_shared(stepper, tensor, which, false, &array)) > 0; which++) total += count;
    float *aside = malloc((total + 1) * sizeof *aside);
    if (!aside) return gw_fail(error, GW_MEMORY, "out of memory for the %zu numbers of a tensor", total);
    for (int which = 0; !status && (count = gw_stepper_shared(stepper, tensor, which, false, &array)) > 0; which++) {
        status = gw_step_heard(gw_recv(m->comm, aside + at, count, GW_F32, from), error);
        at += count;
    }
    at = 0;
    for (int which = 0; !status && (count = gw_stepper_shared(stepper, tensor, which, false, &array)) > 0; which++) {
        memcpy(array, aside + at, count * sizeof *array);
        at += count;
    }
    free(aside);
    if (!status) gw_stepper_caught_up(m->step->stepper, tensor, gw_standings_newest(&m->standings, tensor));
    return status;
}

/* All ranks go through the tensors in the same order, so nobody waits for somebody who waits for it. */
static gw_status level(meeting *m, int tensor, gw_error *error) {
    const gw_standings *s = &m->standings;
    int source = gw_standings_source(s, tensor), me = m->comm->rank;
    gw_status status = GW_OK;
    for (int rank = 0; !status && rank < s->world; rank++) {
        if (!gw_standings_behind(s, rank, tensor)) continue;
        if (me == source) status = give(m, tensor, rank, error);
        if (me == rank) status = take(m, tensor, source, error);
    }
    return status;
}

static gw_status catch_up(meeting *m, gw_error *error) {
    gw_step *step = m->step;
    gw_status status = tell(m, error);
    if (status || gw_standings_fresh(&m->standings)) return status;
    status = gw_standings_check(&m->standings, error);
    for (int t = 0; !status && t < step->count; t++) status = level(m, t, error);
    if (status) return status;
    step->next = gw_standings_next(&m->standings);
    if (step->fresh) step->first = step->next;
    gw_stepper_begin_at(step->stepper, step->next);
    return GW_OK;
}

gw_status gw_step_catch_up(gw_step *step, gw_error *error) {
    meeting m = {.step = step};
    if (step->fresh && step->comm->node->place.round == 0) return GW_OK; /* nobody was there before */
    gw_status status = gw_step_heard(gw_comm_split(step->comm, 0, step->comm->rank, &m.comm), error);
    if (!status) status = catch_up(&m, error);
    free(m.standings.entries);
    gw_finalize(m.comm);
    return status;
}
