/* passes.h - the passes of a model for the batch sizes in use: that of an epoch and its last one, for training and for
 * evaluation. Each is made when it is first asked for. */
#ifndef GW_TRAIN_PASSES_H
#define GW_TRAIN_PASSES_H

#include "train/pass.h"

#define GW_PASSES_MAX 4

typedef struct gw_passes {
    gw_pass *list[GW_PASSES_MAX]; /* owned; NULL: free */
    bool trains[GW_PASSES_MAX];
} gw_passes;

/* May destroy a pass got earlier. */
gw_status gw_passes_get(gw_passes *passes, gw_model *model, const gw_pass_options *options, gw_pass **pass,
                        gw_error *error);
void gw_passes_destroy(gw_passes *passes);

#endif
