/* pass_cache.h - the passes of a model for the batch sizes in use: the usual one and the smaller last one of an epoch,
 * for training and for evaluation. Each is made at its first use. */
#ifndef GW_NN_PASS_CACHE_H
#define GW_NN_PASS_CACHE_H

#include "nn/pass.h"

#define GW_PASSES_MAX 4

typedef struct gw_passes {
    gw_pass *list[GW_PASSES_MAX]; /* owned; NULL: free */
    bool trains[GW_PASSES_MAX];
} gw_passes;

/* May destroy a pass that an earlier call returned. */
gw_status gw_passes_get(gw_passes *passes, gw_model *model, const gw_pass_options *options, gw_pass **pass,
                        gw_error *error);
void gw_passes_destroy(gw_passes *passes);

#endif
