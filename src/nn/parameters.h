/* parameters.h - the parameters of a model, or of consecutive layers of it: one block of memory for the weights and one
 * for their gradients, row-major and without gaps, in forward order, so that a bucket is a contiguous range. */
#ifndef GW_NN_PARAMETERS_H
#define GW_NN_PARAMETERS_H

#include <stdint.h>

#include "nn/model_spec.h"

typedef struct gw_model {
    const gw_spec *spec; /* the caller's, outlives the model */
    int first, end;      /* nodes of the spec */
    gw_parameter *table; /* in forward order; offsets are into weights and gradients */
    int parameters;
    size_t count; /* floats of weights, and of gradients */
    float *weights, *gradients;
    gw_parameter *buffer_table; /* running statistics: not trained, averaged over ranks before each use */
    int buffer_tensors;
    size_t buffer_count; /* floats */
    float *buffers;
    bool owns_weights, owns_gradients;
} gw_model;

typedef struct gw_model_options {
    uint64_t seed;
    int first, end;             /* nodes; 0, 0: all. A cut must be allowed by gw_spec_can_cut. */
    float *weights, *gradients; /* the caller's memory (shared, registered), NULL: the model's own */
} gw_model_options;

/* The seed determines the weights: the same bits on every machine, and in a part of the model the same as in the whole.
 */
gw_status gw_model_create(const gw_spec *spec, const gw_model_options *options, gw_model **model, gw_error *error);
void gw_model_destroy(gw_model *model); /* NULL is fine */

gw_shape gw_model_input(const gw_model *model);
gw_shape gw_model_output(const gw_model *model);
size_t gw_model_bytes(const gw_model *model); /* weights, gradients and buffers */

#endif
