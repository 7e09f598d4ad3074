/* stages.h - where a model may be cut into stages, what its parts cost, and which cut is best. */
#ifndef GW_TRAIN_STAGES_H
#define GW_TRAIN_STAGES_H

#include <stdint.h>

#include "train/spec.h"

/* A model cut at every place where exactly one tensor crosses (never inside a residual block); each piece computes
 * something. */
typedef struct gw_pieces {
    int *first; /* nodes; count + 1 entries, the last is the spec's node count */
    int count;
} gw_pieces;

gw_status gw_pieces_find(const gw_spec *spec, gw_pieces *pieces, gw_error *error);
void gw_pieces_free(gw_pieces *pieces);

/* ns of a forward and a backward pass of each piece with this batch: the fastest of a few. One piece is held in memory
 * at a time. */
gw_status gw_pieces_measure(const gw_spec *spec, const gw_pieces *pieces, int batch, uint64_t *costs, gw_error *error);

/* Neighbouring pieces become stages so that the most expensive stage costs as little as possible. first: the first
 * piece of each stage, stages + 1 entries. 1 <= stages <= pieces. The same costs give the same stages everywhere. */
gw_status gw_stages_choose(const uint64_t *costs, int pieces, int stages, int *first, gw_error *error);

#endif
