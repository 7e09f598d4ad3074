/* belongings.h - what each rank has for itself, and a checkpoint holds for each: residuals of codecs, anchors; and
 * weights and optimiser state where the ranks run optimisers of their own (sync=periodic). Collective calls. */
#ifndef GW_TRAIN_BELONGINGS_H
#define GW_TRAIN_BELONGINGS_H

#include "store/checkpoint.h"
#include "train/trainer.h"

/* Those of all ranks, on rank 0; bytes[r] each, one after the other. */
typedef struct gw_belongings {
    uint8_t *memory;
    uint64_t *bytes; /* world entries */
} gw_belongings;

gw_status gw_belongings_collect(gw_trainer *trainer, gw_belongings *belongings, gw_error *error);
void gw_belongings_free(gw_belongings *belongings);
gw_status gw_belongings_add(const gw_trainer *trainer, const gw_belongings *belongings, gw_checkpoint_writer *writer,
                            gw_error *error);
/* path: on rank 0. taken: every rank has got its own back; else they were of another strategy, or not there, and all
 * ranks begin without. */
gw_status gw_belongings_load(gw_trainer *trainer, const char *path, bool *taken, gw_error *error);
/* The same where another number of ranks wrote the file: each takes the mean of what those kept in residuals. Not where
 * ranks have weights or layers of their own. */
gw_status gw_belongings_take_over(gw_trainer *trainer, const char *path, int world, bool *taken, gw_error *error);

#endif
