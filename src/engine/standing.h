/* standing.h - where the tensors of a step stand on every rank, after a loss and without servers.
 *
 * An all-reduce is not atomic under a death: one rank may have received and applied a tensor of the interrupted step,
 * another not. But ranks cannot be further apart: a tensor is applied only when all ranks have given their part, and a
 * rank gives its part of a step only after it has applied the step before. So members compare the steps that their
 * tensors have reached, and whoever is behind gets the tensor from a rank that is not: its weights and the optimiser's
 * arrays (gw_stepper_shared). A rank that came anew is behind with all of them. The next step has the number after the
 * furthest that anybody made; a tensor that nobody has applied in it misses that update. Ranks may die while tensors
 * are passed on: each is taken whole or not at all, and they are compared again. Pure. */
#ifndef GW_ENGINE_STANDING_H
#define GW_ENGINE_STANDING_H

#include "engine/stepper.h"

/* What a rank says of itself; then the step that each tensor has reached. Goes over the wire as it is. */
typedef struct gw_standing {
    uint64_t fresh;    /* 1: it came anew */
    uint64_t furthest; /* the step after the last that it made */
    uint64_t arrays;   /* a digest of what its optimiser keeps: has to be the same on all ranks */
    uint64_t reached[];
} gw_standing;

typedef struct gw_standings {
    int world, tensors;
    uint8_t *entries; /* gw_standing_bytes each */
} gw_standings;

size_t gw_standing_bytes(int tensors);
void gw_standing_write(gw_standing *standing, const gw_stepper *stepper, int tensors, bool fresh);

/* All came anew: there is nothing to compare. */
bool gw_standings_fresh(const gw_standings *standings);
/* GW_MISMATCH: optimisers keep different things. */
gw_status gw_standings_check(const gw_standings *standings, gw_error *error);
/* The step that the tensor has to stand at; who is behind; and a rank that is not, another one for each tensor, so that
 * no link carries all of them. */
uint64_t gw_standings_newest(const gw_standings *standings, int tensor);
bool gw_standings_behind(const gw_standings *standings, int rank, int tensor);
int gw_standings_source(const gw_standings *standings, int tensor);
uint64_t gw_standings_next(const gw_standings *standings); /* the number of the next step */

#endif
