/* rank_state.h - per-rank state that a checkpoint stores for each rank: residuals of codecs and anchors; with
 * sync=periodic, where ranks run local optimisers, also weights and optimiser state. Collective calls. */
#ifndef GW_TRAIN_RANK_STATE_H
#define GW_TRAIN_RANK_STATE_H

#include "store/checkpoint.h"
#include "train/trainer.h"

/* On rank 0: the states of all ranks, one after the other, bytes[r] each. */
typedef struct gw_rank_state {
    uint8_t *memory;
    uint64_t *bytes; /* world entries */
} gw_rank_state;

gw_status gw_rank_state_collect(gw_trainer *trainer, gw_rank_state *state, gw_error *error);
void gw_rank_state_free(gw_rank_state *state);
gw_status gw_rank_state_add(const gw_trainer *trainer, const gw_rank_state *state, gw_checkpoint_writer *writer,
                            gw_error *error);
/* path: on rank 0. *taken: every rank has restored its state. Otherwise the file has no state, or the state of another
 * strategy, and all ranks start without it. */
gw_status gw_rank_state_load(gw_trainer *trainer, const char *path, bool *taken, gw_error *error);
/* The same for a file that `world` ranks wrote, another number than now: each rank takes the mean of their residuals.
 * Not with local optimisers or a pipeline; then *taken is false. */
gw_status gw_rank_state_take_over(gw_trainer *trainer, const char *path, int world, bool *taken, gw_error *error);

#endif
