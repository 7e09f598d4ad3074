/* pass_cache.c - see pass_cache.h. */
#include "nn/pass_cache.h"

gw_status gw_passes_get(gw_passes *passes, gw_model *model, const gw_pass_options *options, gw_pass **pass,
                        gw_error *error) {
    int place = -1;
    for (int i = 0; i < GW_PASSES_MAX; i++) {
        if (!passes->list[i]) {
            place = place < 0 ? i : place;
        } else if (gw_pass_batch(passes->list[i]) == options->batch && passes->trains[i] == options->trains) {
            *pass = passes->list[i];
            return GW_OK;
        }
    }
    if (place < 0) {
        place = GW_PASSES_MAX - 1;
        gw_pass_destroy(passes->list[place]);
        passes->list[place] = NULL;
    }
    passes->trains[place] = options->trains;
    gw_status status = gw_pass_create(model, options, &passes->list[place], error);
    *pass = passes->list[place];
    return status;
}

void gw_passes_destroy(gw_passes *passes) {
    for (int i = 0; i < GW_PASSES_MAX; i++) gw_pass_destroy(passes->list[i]);
    *passes = (gw_passes){0};
}
