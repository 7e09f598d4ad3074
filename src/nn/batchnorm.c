/* batchnorm.c - batch normalisation (Ioffe, Szegedy 2015). Training uses the statistics of this rank's batch. The
 * running statistics for evaluation (momentum 0.1, unbiased variance) are in the model's buffers. */
#include <stddef.h>

#include "nn/layer.h"
#include "nn/model_spec.h"

#define EPSILON 1e-5f
#define MOMENTUM 0.1f

static const gw_word words[] = {{"relu", GW_WORD_FLAG, offsetof(gw_settings, relu), 0, 1}, {.name = NULL}};

typedef struct batchnorm {
    gw_dnn_op *training, *inference, *backward;
    dnnl_memory_t scale_gradient, shift_gradient;
    float *mean, *variance; /* of the batch */
} batchnorm;

static gw_status configure(gw_spec *spec, gw_graph_node *node, gw_error *error) {
    int channels = node->in.channels;
    node->out = node->in;
    node->flops = 4 * gw_shape_count(node->in);
    gw_declare d = {.ndims = 1, .dims = {channels}};
    d.name = "scale", d.initial = 1;
    gw_status status = gw_spec_add_parameter(spec, node, d, error);
    d.name = "shift", d.initial = 0;
    if (status == GW_OK) status = gw_spec_add_parameter(spec, node, d, error);
    d.name = "mean";
    if (status == GW_OK) status = gw_spec_add_buffer(spec, node, d, error);
    d.name = "variance", d.initial = 1;
    if (status == GW_OK) status = gw_spec_add_buffer(spec, node, d, error);
    return status;
}

static gw_dnn_op *create_forward(gw_layer *layer, bool training, unsigned flags, float *mean, float *variance) {
    gw_dnn *dnn = layer->dnn;
    gw_md data = gw_md_image(layer->batch, layer->node->in), vector = gw_md_vector(layer->node->in.channels);
    dnnl_batch_normalization_desc_t desc;
    dnnl_batch_normalization_forward_desc_init(&desc, training ? dnnl_forward_training : dnnl_forward_inference, &data,
                                               EPSILON, training ? flags : flags | dnnl_use_global_stats);
    gw_dnn_op *made = gw_dnn_operation(dnn, &desc, NULL, GW_POST_OP_NONE);
    gw_operation_set(made, DNNL_ARG_SRC, gw_dnn_memory(dnn, &data, layer->input[0]));
    gw_operation_set(made, DNNL_ARG_DST, gw_dnn_memory(dnn, &data, layer->output));
    gw_operation_set(made, DNNL_ARG_MEAN, gw_dnn_memory(dnn, &vector, mean));
    gw_operation_set(made, DNNL_ARG_VARIANCE, gw_dnn_memory(dnn, &vector, variance));
    gw_operation_set(made, DNNL_ARG_SCALE, gw_dnn_memory(dnn, &vector, (void *)(uintptr_t)gw_layer_weights(layer, 0)));
    gw_operation_set(made, DNNL_ARG_SHIFT, gw_dnn_memory(dnn, &vector, (void *)(uintptr_t)gw_layer_weights(layer, 1)));
    return made;
}

static void create_backward(gw_layer *layer, batchnorm *b, unsigned flags, dnnl_memory_t workspace) {
    gw_dnn *dnn = layer->dnn;
    gw_md data = gw_md_image(layer->batch, layer->node->in), vector = gw_md_vector(layer->node->in.channels);
    /* oneDNN always writes the input gradient. If no layer needs it, it is written over the output gradient, which is
     * no longer used. */
    float *gradient = layer->input_gradient[0] ? layer->input_gradient[0] : layer->output_gradient;
    dnnl_batch_normalization_desc_t desc;
    dnnl_batch_normalization_backward_desc_init(&desc, dnnl_backward, &data, &data, EPSILON, flags);
    b->backward = gw_dnn_operation(dnn, &desc, b->training, GW_POST_OP_NONE);
    b->scale_gradient = gw_dnn_memory(dnn, &vector, NULL);
    b->shift_gradient = gw_dnn_memory(dnn, &vector, NULL);
    gw_operation_set(b->backward, DNNL_ARG_SRC, gw_dnn_memory(dnn, &data, layer->input[0]));
    gw_operation_set(b->backward, DNNL_ARG_MEAN, gw_dnn_memory(dnn, &vector, b->mean));
    gw_operation_set(b->backward, DNNL_ARG_VARIANCE, gw_dnn_memory(dnn, &vector, b->variance));
    gw_operation_set(b->backward, DNNL_ARG_SCALE,
                     gw_dnn_memory(dnn, &vector, (void *)(uintptr_t)gw_layer_weights(layer, 0)));
    gw_operation_set(b->backward, DNNL_ARG_SHIFT, /* not used, but oneDNN counts its arguments */
                     gw_dnn_memory(dnn, &vector, (void *)(uintptr_t)gw_layer_weights(layer, 1)));
    gw_operation_set(b->backward, DNNL_ARG_DIFF_DST, gw_dnn_memory(dnn, &data, layer->output_gradient));
    gw_operation_set(b->backward, DNNL_ARG_DIFF_SRC, gw_dnn_memory(dnn, &data, gradient));
    gw_operation_set(b->backward, DNNL_ARG_DIFF_SCALE, b->scale_gradient);
    gw_operation_set(b->backward, DNNL_ARG_DIFF_SHIFT, b->shift_gradient);
    gw_operation_set(b->backward, DNNL_ARG_WORKSPACE, workspace);
}

static void create(gw_layer *layer) {
    gw_dnn *dnn = layer->dnn;
    batchnorm *b = layer->own = gw_dnn_alloc(dnn, sizeof *b);
    if (!b) return;
    unsigned flags = dnnl_use_scale | dnnl_use_shift | (layer->node->settings.relu ? dnnl_fuse_norm_relu : 0);
    size_t bytes = (size_t)layer->node->in.channels * sizeof(float);
    b->mean = gw_dnn_alloc(dnn, bytes);
    b->variance = gw_dnn_alloc(dnn, bytes);
    b->inference = create_forward(layer, false, flags, gw_layer_buffer(layer, 0), gw_layer_buffer(layer, 1));
    if (!layer->trains) return;
    b->training = create_forward(layer, true, flags, b->mean, b->variance);
    dnnl_memory_t workspace = NULL; /* mask of the outputs that the relu passed */
    if (layer->node->settings.relu)
        workspace = gw_dnn_memory_new(dnn, gw_operation_md(b->training, dnnl_query_workspace_md));
    gw_operation_set(b->training, DNNL_ARG_WORKSPACE, workspace);
    create_backward(layer, b, flags, workspace);
}

static void follow(float *running, const float *batch, int channels, float factor) {
    for (int c = 0; c < channels; c++) running[c] += MOMENTUM * (batch[c] * factor - running[c]);
}

static void forward(gw_layer *layer, bool training) {
    batchnorm *b = layer->own;
    gw_dnn_run(training ? b->training : b->inference);
    if (!training) return;
    float samples = (float)layer->batch * (float)gw_shape_positions(layer->node->in);
    follow(gw_layer_buffer(layer, 0), b->mean, layer->node->in.channels, 1);
    follow(gw_layer_buffer(layer, 1), b->variance, layer->node->in.channels, samples > 1 ? samples / (samples - 1) : 1);
}

static void backward(gw_layer *layer) {
    batchnorm *b = layer->own;
    gw_dnn_bind(b->scale_gradient, gw_layer_gradients(layer, 0));
    gw_dnn_bind(b->shift_gradient, gw_layer_gradients(layer, 1));
    gw_dnn_run(b->backward);
}

const gw_layer_kind gw_batchnorm = {
    .name = "batchnorm",
    .usage = "batchnorm [relu]",
    .about = "normalises each channel over the batch of this rank",
    .words = words,
    .masks_relu = true,
    .configure = configure,
    .create = create,
    .forward = forward,
    .backward_parameters = backward,
};
