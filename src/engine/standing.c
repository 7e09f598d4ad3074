/* standing.c - see standing.h. */
#include "engine/standing.h"

/* One rank. */

size_t gw_standing_bytes(int tensors) { return sizeof(gw_standing) + (size_t)tensors * sizeof(uint64_t); }

static uint64_t digest_of_arrays(const gw_stepper *stepper, int tensors) {
    uint64_t digest = 0;
    float *array;
    for (int t = 0; t < tensors; t++)
        for (int which = 0; gw_stepper_shared(stepper, t, which, true, &array); which++)
            digest = digest * 31 + (uint64_t)t + 1;
    return digest;
}

void gw_standing_write(gw_standing *standing, const gw_stepper *stepper, int tensors, bool fresh) {
    standing->fresh = fresh;
    standing->furthest = gw_stepper_furthest(stepper);
    standing->arrays = digest_of_arrays(stepper, tensors);
    for (int t = 0; t < tensors; t++) standing->reached[t] = gw_stepper_reached(stepper, t);
}

/* All. */

static const gw_standing *of(const gw_standings *s, int rank) {
    return (const gw_standing *)(const void *)(s->entries + (size_t)rank * gw_standing_bytes(s->tensors));
}

bool gw_standings_fresh(const gw_standings *s) {
    for (int rank = 0; rank < s->world; rank++)
        if (!of(s, rank)->fresh) return false;
    return true;
}

gw_status gw_standings_check(const gw_standings *s, gw_error *error) {
    for (int rank = 1; rank < s->world; rank++)
        if (of(s, rank)->arrays != of(s, 0)->arrays)
            return gw_fail(error, GW_MISMATCH,
                           "the optimisers of rank 0 and rank %d keep different numbers of arrays (gw_step_state_fn), "
                           "so one cannot be brought to where the other is",
                           rank);
    return GW_OK;
}

uint64_t gw_standings_newest(const gw_standings *s, int tensor) {
    uint64_t step = 0;
    for (int rank = 0; rank < s->world; rank++)
        if (!of(s, rank)->fresh && of(s, rank)->reached[tensor] > step) step = of(s, rank)->reached[tensor];
    return step;
}

bool gw_standings_behind(const gw_standings *s, int rank, int tensor) {
    return of(s, rank)->fresh || of(s, rank)->reached[tensor] < gw_standings_newest(s, tensor);
}

int gw_standings_source(const gw_standings *s, int tensor) {
    int rank = tensor % s->world;
    while (gw_standings_behind(s, rank, tensor)) rank = (rank + 1) % s->world;
    return rank;
}

uint64_t gw_standings_next(const gw_standings *s) {
    uint64_t next = 0;
    for (int rank = 0; rank < s->world; rank++)
        if (!of(s, rank)->fresh && of(s, rank)->furthest > next) next = of(s, rank)->furthest;
    for (int t = 0; t < s->tensors; t++) /* of a rank that was ahead, and died when it had given this one away */
        if (gw_standings_newest(s, t) > next) next = gw_standings_newest(s, t);
    return next;
}
