/* pass.h - forward and backward through a model for one batch size. Everything is made and allocated here; running it
 * allocates nothing. A model may have several passes (another size for the last batch, several micro-batches in
 * flight, evaluation); they share its weights and gradients. One thread at a time. */
#ifndef GW_TRAIN_PASS_H
#define GW_TRAIN_PASS_H

#include "train/model.h"

typedef struct gw_pass gw_pass;

/* Called while a pass runs, in its thread. Parameters are numbers in the model's table. Each may be NULL. */
typedef struct gw_pass_hooks {
    void *ctx;
    /* The forward is about to use these parameters: waits until they may be read. */
    gw_status (*needed)(void *ctx, int first_parameter, int parameters, gw_error *error);
    /* This gradient is complete, and this backward pass reads the parameter no more: it may be updated at once. */
    void (*gradient_ready)(void *ctx, int parameter);
    /* Whether a gradient is wanted as factors, and that they are there until it returns; not asked where gradients are
     * added to those that are there. */
    bool (*wants_factors)(void *ctx, int parameter);
    void (*factors_ready)(void *ctx, int parameter, gw_layer_factors factors);
    /* A layer (a node of the spec) has been run. */
    void (*layer_done)(void *ctx, int node, bool backward);
} gw_pass_hooks;

typedef struct gw_pass_options {
    int batch;
    bool trains;         /* there will be a backward */
    bool input_gradient; /* of the model's input: for all but the first stage of a pipeline */
} gw_pass_options;

gw_status gw_pass_create(gw_model *model, const gw_pass_options *options, gw_pass **pass, gw_error *error);
void gw_pass_destroy(gw_pass *pass); /* NULL is fine */

/* batch examples one after the other, channels last; int32_t where the model's input are tokens. Not NULL. */
float *gw_pass_input(gw_pass *pass);
const float *gw_pass_output(const gw_pass *pass);
/* Where the gradient of the output is to be written before backward; NULL where it does not train. */
float *gw_pass_output_gradient(gw_pass *pass);
/* NULL unless asked for; valid until the next backward. */
const float *gw_pass_input_gradient(const gw_pass *pass);
int gw_pass_batch(const gw_pass *pass);
size_t gw_pass_bytes(const gw_pass *pass); /* activations, their gradients, what the operations need */

/* training: batch norms use the batch's statistics and follow them. hooks may be NULL. */
gw_status gw_pass_forward(gw_pass *pass, bool training, const gw_pass_hooks *hooks, gw_error *error);
/* After a forward for training. Gradients are written, or added to those that are there. */
gw_status gw_pass_backward(gw_pass *pass, bool accumulate, const gw_pass_hooks *hooks, gw_error *error);

#endif
