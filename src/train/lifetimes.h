/* lifetimes.h - which gradients of activations may share memory: one is needed from the backward of the last layer that
 * read the activation to that of the layer that made it. Few live at once, and those that share stay in the cache. */
#ifndef GW_TRAIN_LIFETIMES_H
#define GW_TRAIN_LIFETIMES_H

#include "train/spec.h"

typedef struct gw_lifetimes {
    int *slot;          /* of each tensor of the spec, -1: it has no gradient */
    int (*aside)[2];    /* of each node of the spec, for each input: the slot into which the layer writes because the
                           gradient already holds that of a later layer, to be added to it; -1: straight into it */
    size_t *slot_count; /* floats of one example */
    int slots;
} gw_lifetimes;

/* For the nodes first..end-1. input_gradient: that of the first one's input is wanted too. */
gw_status gw_lifetimes_plan(const gw_spec *spec, int first, int end, bool input_gradient, gw_lifetimes *lifetimes,
                            gw_error *error);
void gw_lifetimes_free(gw_lifetimes *lifetimes);

#endif
