/* layernorm.c - layer normalisation (Ba, Kiros, Hinton 2016): each position over its channels. */
#include "nn/layer.h"
#include "nn/model_spec.h"

#define EPSILON 1e-5f
#define FLAGS (dnnl_use_scale | dnnl_use_shift)

static const gw_word words[] = {{.name = NULL}};

typedef struct layernorm {
    gw_dnn_op *forward, *backward;
    dnnl_memory_t scale_gradient, shift_gradient;
} layernorm;

static gw_status configure(gw_spec *spec, gw_graph_node *node, gw_error *error) {
    node->out = node->in;
    node->flops = 8 * gw_shape_count(node->in);
    gw_declare d = {.name = "scale", .initial = 1, .ndims = 1, .dims = {node->in.channels}};
    gw_status status = gw_spec_add_parameter(spec, node, d, error);
    if (status != GW_OK) return status;
    d.name = "shift", d.initial = 0;
    return gw_spec_add_parameter(spec, node, d, error);
}

static void set(gw_layer *layer, gw_dnn_op *operation, int argument, const gw_md *md, const float *data) {
    gw_operation_set(operation, argument, gw_dnn_memory(layer->dnn, md, (void *)(uintptr_t)data));
}

static void create_backward(gw_layer *layer, layernorm *n, const gw_md *data, const gw_md *row, dnnl_memory_t mean,
                            dnnl_memory_t variance) {
    gw_md vector = gw_md_vector(layer->node->in.channels);
    /* oneDNN always writes the input gradient. If no layer needs it, it is written over the output gradient, which is
     * no longer used. */
    float *gradient = layer->input_gradient[0] ? layer->input_gradient[0] : layer->output_gradient;
    dnnl_layer_normalization_desc_t desc;
    dnnl_layer_normalization_backward_desc_init(&desc, dnnl_backward, data, data, row, EPSILON, FLAGS);
    n->backward = gw_dnn_operation(layer->dnn, &desc, n->forward, GW_POST_OP_NONE);
    n->scale_gradient = gw_dnn_memory(layer->dnn, &vector, NULL);
    n->shift_gradient = gw_dnn_memory(layer->dnn, &vector, NULL);
    set(layer, n->backward, DNNL_ARG_SRC, data, layer->input[0]);
    set(layer, n->backward, DNNL_ARG_SCALE, &vector, gw_layer_weights(layer, 0));
    set(layer, n->backward, DNNL_ARG_SHIFT, &vector, gw_layer_weights(layer, 1)); /* not used, but oneDNN requires it */
    set(layer, n->backward, DNNL_ARG_DIFF_DST, data, layer->output_gradient);
    set(layer, n->backward, DNNL_ARG_DIFF_SRC, data, gradient);
    gw_operation_set(n->backward, DNNL_ARG_MEAN, mean);
    gw_operation_set(n->backward, DNNL_ARG_VARIANCE, variance);
    gw_operation_set(n->backward, DNNL_ARG_DIFF_SCALE, n->scale_gradient);
    gw_operation_set(n->backward, DNNL_ARG_DIFF_SHIFT, n->shift_gradient);
}

static void create(gw_layer *layer) {
    layernorm *n = layer->own = gw_dnn_alloc(layer->dnn, sizeof *n);
    if (!n) return;
    int rows = layer->batch * gw_shape_positions(layer->node->in), channels = layer->node->in.channels;
    gw_md data = gw_md_plain(2, (int[]){rows, channels}), row = gw_md_vector(rows), vector = gw_md_vector(channels);
    dnnl_layer_normalization_desc_t desc;
    dnnl_layer_normalization_forward_desc_init(&desc, dnnl_forward_training, &data, &row, EPSILON, FLAGS);
    n->forward = gw_dnn_operation(layer->dnn, &desc, NULL, GW_POST_OP_NONE);
    dnnl_memory_t mean = gw_dnn_memory_new(layer->dnn, &row), variance = gw_dnn_memory_new(layer->dnn, &row);
    set(layer, n->forward, DNNL_ARG_SRC, &data, layer->input[0]);
    set(layer, n->forward, DNNL_ARG_DST, &data, layer->output);
    set(layer, n->forward, DNNL_ARG_SCALE, &vector, gw_layer_weights(layer, 0));
    set(layer, n->forward, DNNL_ARG_SHIFT, &vector, gw_layer_weights(layer, 1));
    gw_operation_set(n->forward, DNNL_ARG_MEAN, mean);
    gw_operation_set(n->forward, DNNL_ARG_VARIANCE, variance);
    if (layer->trains) create_backward(layer, n, &data, &row, mean, variance);
}

static void forward(gw_layer *layer, bool training) {
    (void)training;
    layernorm *n = layer->own;
    gw_dnn_run(n->forward);
}

static void backward(gw_layer *layer) {
    layernorm *n = layer->own;
    gw_dnn_bind(n->scale_gradient, gw_layer_gradients(layer, 0));
    gw_dnn_bind(n->shift_gradient, gw_layer_gradients(layer, 1));
    gw_dnn_run(n->backward);
}

const gw_layer_kind gw_layernorm = {
    .name = "layernorm",
    .usage = "layernorm",
    .about = "normalises each position over its channels",
    .words = words,
    .configure = configure,
    .create = create,
    .forward = forward,
    .backward_parameters = backward,
};
