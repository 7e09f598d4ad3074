/* activation_memory.h - memory plan for the gradients of activations. A gradient lives from the backward pass of the
 * last layer that read the activation to that of the layer that produced it. Few live at once, so they share slots, and
 * shared slots stay in the cache. */
#ifndef GW_NN_ACTIVATION_MEMORY_H
#define GW_NN_ACTIVATION_MEMORY_H

#include "nn/model_spec.h"

typedef struct gw_lifetimes {
    int *slot;          /* of each tensor of the spec, -1: it has no gradient */
    int (*scratch)[2];  /* of each node of the spec, for each input: the slot that the layer writes to if the gradient
                           already has a later layer's part; the pass then adds both. -1: it writes to the gradient */
    size_t *slot_count; /* floats of one example */
    int slots;
} gw_lifetimes;

/* For the nodes first..end-1. input_gradient: the gradient of the first node's input is needed too. */
gw_status gw_lifetimes_plan(const gw_spec *spec, int first, int end, bool input_gradient, gw_lifetimes *lifetimes,
                            gw_error *error);
void gw_lifetimes_free(gw_lifetimes *lifetimes);

#endif
