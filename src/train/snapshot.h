/* snapshot.h - a trainer's state in a checkpoint: weights, optimiser, running statistics, and the position in the data.
 *
 * Rank 0 writes and reads the whole model, however it is spread over stages; the others get what it read. A run that
 * goes on from a snapshot with the same number of ranks computes the same bits as one that was never interrupted. Both
 * calls are collective; of an error only rank 0 gets the sentence, the others its status with an empty one. */
#ifndef GW_TRAIN_SNAPSHOT_H
#define GW_TRAIN_SNAPSHOT_H

#include "train/trainer.h"

gw_status gw_snapshot_save(gw_trainer *trainer, const char *path, gw_error *error);
typedef struct gw_snapshot_found {
    int world;      /* with how many ranks it was written; 0: there is no such file, and nothing has changed */
    bool continues; /* what each rank kept for itself (residuals and the like) is back as well, or was handed over */
} gw_snapshot_found;

/* A snapshot of another model, data set, batch, seed or optimiser is refused. */
gw_status gw_snapshot_load(gw_trainer *trainer, const char *path, gw_snapshot_found *found, gw_error *error);

#endif
