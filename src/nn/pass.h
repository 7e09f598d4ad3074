/* pass.h - forward and backward pass of a model for one batch size. gw_pass_create allocates everything; running a pass
 * allocates nothing. A model may have several passes (a smaller last batch, several micro-batches in flight,
 * evaluation); they share its weights and gradients. One thread at a time. */
#ifndef GW_NN_PASS_H
#define GW_NN_PASS_H

#include "nn/parameters.h"

typedef struct gw_pass gw_pass;

/* Called while a pass runs, in its thread. Parameters are indices in the model's table. Each may be NULL. */
typedef struct gw_pass_hooks {
    void *ctx;
    /* The forward pass is about to use these parameters: the hook waits until they may be read. */
    gw_status (*needed)(void *ctx, int first_parameter, int parameters, gw_error *error);
    /* Several layers of the forward pass could run next; each is named by its first parameter. Which of them shall run,
     * as an index of the list? It may wait. NULL: layers run in the order of the model. */
    int (*choose)(void *ctx, const int *parameters, int count);
    /* This gradient is complete, and this backward pass no longer reads the parameter: it may be updated at once. */
    void (*gradient_ready)(void *ctx, int parameter);
    /* wants_factors: whether to deliver a gradient as factors; not called when gradients accumulate. The factors are
     * valid until factors_ready returns. */
    bool (*wants_factors)(void *ctx, int parameter);
    void (*factors_ready)(void *ctx, int parameter, gw_layer_factors factors);
    /* A layer (a node of the spec) has been run. */
    void (*layer_done)(void *ctx, int node, bool backward);
} gw_pass_hooks;

typedef struct gw_pass_options {
    int batch;
    bool trains;         /* gw_pass_backward will be called */
    bool input_gradient; /* of the model's input: for all but the first stage of a pipeline */
} gw_pass_options;

gw_status gw_pass_create(gw_model *model, const gw_pass_options *options, gw_pass **pass, gw_error *error);
void gw_pass_destroy(gw_pass *pass); /* NULL is fine */

/* batch examples one after the other, channels last; int32_t if the model's input is tokens. Not NULL. */
float *gw_pass_input(gw_pass *pass);
const float *gw_pass_output(const gw_pass *pass);
/* The caller writes the gradient of the output here before backward; NULL if the pass does not train. */
float *gw_pass_output_gradient(gw_pass *pass);
/* NULL unless asked for; valid until the next backward. */
const float *gw_pass_input_gradient(const gw_pass *pass);
int gw_pass_batch(const gw_pass *pass);
size_t gw_pass_bytes(const gw_pass *pass); /* activations, their gradients, and memory of the operations */

/* training: batch norms use the batch's statistics and update the running ones. hooks may be NULL. */
gw_status gw_pass_forward(gw_pass *pass, bool training, const gw_pass_hooks *hooks, gw_error *error);
/* After a forward pass for training. Writes the gradients; with accumulate, adds to them. */
gw_status gw_pass_backward(gw_pass *pass, bool accumulate, const gw_pass_hooks *hooks, gw_error *error);

#endif
