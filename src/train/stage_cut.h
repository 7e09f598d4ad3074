/* stage_cut.h - cuts a model into pipeline stages: finds the allowed cuts, measures, and balances the stages. */
#ifndef GW_TRAIN_STAGE_CUT_H
#define GW_TRAIN_STAGE_CUT_H

#include <stdint.h>

#include "nn/model_spec.h"

/* A model cut into blocks, at every node where exactly one tensor crosses (never inside a residual block). Each block
 * has at least one node that computes. */
typedef struct gw_model_blocks {
    int *first; /* nodes; count + 1 entries, the last is the spec's node count */
    int count;
} gw_model_blocks;

gw_status gw_model_blocks_find(const gw_spec *spec, gw_model_blocks *blocks, gw_error *error);
void gw_model_blocks_free(gw_model_blocks *blocks);

/* ns of a forward and a backward pass of each block with this batch: the fastest of a few runs. Only one block is in
 * memory at a time. */
gw_status gw_model_blocks_measure(const gw_spec *spec, const gw_model_blocks *blocks, int batch, uint64_t *costs,
                                  gw_error *error);

/* Groups consecutive blocks into stages so that the most expensive stage is as cheap as possible. first: the first
 * block of each stage, stages + 1 entries. 1 <= stages <= blocks. Equal costs give equal stages on all ranks. */
gw_status gw_stages_choose(const uint64_t *costs, int blocks, int stages, int *first, gw_error *error);

#endif
