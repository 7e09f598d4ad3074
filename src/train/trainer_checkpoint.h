/* trainer_checkpoint.h - a trainer's state in a checkpoint: weights, optimiser, running statistics, and the position in
 * the data.
 *
 * Rank 0 writes and reads the whole model, even if it is split over stages, and sends the others what it read. A run
 * that resumes with the same number of ranks computes the same bits as an uninterrupted run. Both calls are collective.
 * On an error of rank 0 the others get its status with an empty sentence. */
#ifndef GW_TRAIN_TRAINER_CHECKPOINT_H
#define GW_TRAIN_TRAINER_CHECKPOINT_H

#include "train/trainer.h"

gw_status gw_trainer_checkpoint_save(gw_trainer *trainer, const char *path, gw_error *error);
typedef struct gw_trainer_checkpoint_info {
    int world;      /* number of ranks that wrote it; 0: there is no such file, and nothing has changed */
    bool continues; /* the per-rank state (rank_state.h) is restored too, or redistributed */
} gw_trainer_checkpoint_info;

/* Refuses a checkpoint of another model, data set, batch, seed or optimiser. */
gw_status gw_trainer_checkpoint_load(gw_trainer *trainer, const char *path, gw_trainer_checkpoint_info *found,
                                     gw_error *error);

#endif
