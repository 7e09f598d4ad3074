/* dense.c - a fully connected layer; on a sequence, the same weights at every position. */
#include <math.h>
#include <stddef.h>

#include "nn/layer.h"
#include "nn/model_spec.h"

#define FIELD(name) offsetof(gw_settings, name)

static const gw_word words[] = {
    {"CHANNELS", GW_WORD_OPERAND, FIELD(channels), 1, 1 << 24},
    {"nobias", GW_WORD_FLAG, FIELD(nobias), 0, 1},
    {"relu", GW_WORD_FLAG, FIELD(relu), 0, 1},
    {.name = NULL},
};

typedef struct dense {
    gw_dnn_op *forward, *backward_data, *backward_weights;
    gw_packed weights, weights_again, weight_gradient;
    dnnl_memory_t bias_gradient;
} dense;

static gw_status configure(gw_spec *spec, gw_graph_node *node, gw_error *error) {
    int in = node->in.channels, out = node->settings.channels;
    if (node->in.width != 1)
        return gw_graph_node_fail(node, error, "the input is an image of %dx%dx%d; put flatten or globalpool before",
                                  node->in.height, node->in.width, in);
    node->out = (gw_shape){.height = node->in.height, .width = 1, .channels = out};
    node->flops = 2 * (uint64_t)in * (uint64_t)out * (uint64_t)node->in.height;
    float fan = node->settings.relu ? (float)in : (float)(in + out); /* He before a relu, else Xavier */
    gw_status status = gw_spec_add_parameter(
        spec, node,
        (gw_declare){.name = "weight", .decay = true, .deviation = sqrtf(2.0f / fan), .ndims = 2, .dims = {out, in}},
        error);
    if (status != GW_OK || node->settings.nobias) return status;
    return gw_spec_add_parameter(spec, node, (gw_declare){.name = "bias", .ndims = 1, .dims = {out}}, error);
}

typedef struct geometry {
    gw_md input, output, weights, weights_plain, bias;
} geometry;

static geometry measure(const gw_layer *layer) {
    const gw_graph_node *node = layer->node;
    int rows = layer->batch * node->in.height, in = node->in.channels, out = node->out.channels;
    return (geometry){
        .input = gw_md_plain(2, (int[]){rows, in}),
        .output = gw_md_plain(2, (int[]){rows, out}),
        .weights = gw_md_any(2, (int[]){out, in}),
        .weights_plain = gw_md_plain(2, (int[]){out, in}),
        .bias = node->settings.nobias ? (gw_md){0} : gw_md_vector(out),
    };
}

static void create_forward(gw_layer *layer, dense *d, const geometry *g) {
    gw_dnn *dnn = layer->dnn;
    dnnl_inner_product_desc_t desc;
    dnnl_inner_product_forward_desc_init(&desc, dnnl_forward_training, &g->input, &g->weights, &g->bias, &g->output);
    d->forward = gw_dnn_operation(dnn, &desc, NULL, layer->node->settings.relu ? GW_POST_OP_RELU : GW_POST_OP_NONE);
    gw_operation_set(d->forward, DNNL_ARG_SRC, gw_dnn_memory(dnn, &g->input, layer->input[0]));
    gw_operation_set(d->forward, DNNL_ARG_DST, gw_dnn_memory(dnn, &g->output, layer->output));
    d->weights = gw_packed_in(dnn, d->forward, DNNL_ARG_WEIGHTS, dnnl_query_weights_md, &g->weights_plain);
    gw_dnn_bind(d->weights.plain, gw_layer_weights(layer, 0));
    if (layer->node->settings.nobias) return;
    dnnl_memory_t bias = gw_dnn_memory(dnn, &g->bias, (void *)(uintptr_t)gw_layer_weights(layer, 1));
    gw_operation_set(d->forward, DNNL_ARG_BIAS, bias);
}

static void create_backward_weights(gw_layer *layer, dense *d, const geometry *g) {
    gw_dnn *dnn = layer->dnn;
    dnnl_inner_product_desc_t desc;
    dnnl_inner_product_backward_weights_desc_init(&desc, &g->input, &g->weights, &g->bias, &g->output);
    d->backward_weights = gw_dnn_operation(dnn, &desc, d->forward, GW_POST_OP_NONE);
    gw_operation_set(d->backward_weights, DNNL_ARG_SRC, gw_dnn_memory(dnn, &g->input, layer->input[0]));
    gw_operation_set(d->backward_weights, DNNL_ARG_DIFF_DST, gw_dnn_memory(dnn, &g->output, layer->output_gradient));
    d->weight_gradient =
        gw_packed_out(dnn, d->backward_weights, DNNL_ARG_DIFF_WEIGHTS, dnnl_query_diff_weights_md, &g->weights_plain);
    if (layer->node->settings.nobias) return;
    d->bias_gradient = gw_dnn_memory(dnn, &g->bias, NULL);
    gw_operation_set(d->backward_weights, DNNL_ARG_DIFF_BIAS, d->bias_gradient);
}

static void create_backward_data(gw_layer *layer, dense *d, const geometry *g) {
    gw_dnn *dnn = layer->dnn;
    dnnl_inner_product_desc_t desc;
    dnnl_inner_product_backward_data_desc_init(&desc, &g->input, &g->weights, &g->output);
    d->backward_data = gw_dnn_operation(dnn, &desc, d->forward, GW_POST_OP_NONE);
    gw_operation_set(d->backward_data, DNNL_ARG_DIFF_SRC, gw_dnn_memory(dnn, &g->input, layer->input_gradient[0]));
    gw_operation_set(d->backward_data, DNNL_ARG_DIFF_DST, gw_dnn_memory(dnn, &g->output, layer->output_gradient));
    d->weights_again = gw_packed_in(dnn, d->backward_data, DNNL_ARG_WEIGHTS, dnnl_query_weights_md, &g->weights_plain);
    gw_dnn_bind(d->weights_again.plain, gw_layer_weights(layer, 0));
}

static void create(gw_layer *layer) {
    dense *d = layer->own = gw_dnn_alloc(layer->dnn, sizeof *d);
    if (!d) return;
    geometry g = measure(layer);
    create_forward(layer, d, &g);
    if (layer->trains) create_backward_weights(layer, d, &g);
    if (layer->trains && layer->input_gradient[0]) create_backward_data(layer, d, &g);
}

static void forward(gw_layer *layer, bool training) {
    (void)training;
    dense *d = layer->own;
    gw_packed_move(d->weights);
    gw_dnn_run(d->forward);
}

static void backward_parameters(gw_layer *layer) {
    dense *d = layer->own;
    gw_dnn_bind(d->weight_gradient.plain, gw_layer_gradients(layer, 0));
    if (d->bias_gradient) gw_dnn_bind(d->bias_gradient, gw_layer_gradients(layer, 1));
    gw_dnn_run(d->backward_weights);
    gw_packed_move(d->weight_gradient);
}

/* Only the bias: its gradient is the sum of the output gradients over the batch. */
static void backward_rest(gw_layer *layer) {
    if (layer->node->settings.nobias) return;
    const gw_graph_node *node = layer->node;
    size_t out = (size_t)node->out.channels, batch = (size_t)layer->batch * (size_t)node->in.height;
    float *bias = gw_layer_gradients(layer, 1);
    for (size_t i = 0; i < out; i++) bias[i] = 0;
    for (size_t k = 0; k < batch; k++)
        for (size_t i = 0; i < out; i++) bias[i] += layer->output_gradient[k * out + i];
}

static gw_layer_factors factors(const gw_layer *layer) {
    return (gw_layer_factors){.left = layer->output_gradient, .right = layer->input[0],
                              .batch = (size_t)layer->batch * (size_t)layer->node->in.height};
}

static void backward_input(gw_layer *layer) {
    dense *d = layer->own;
    if (!d->backward_data) return;
    gw_packed_move(d->weights_again);
    gw_dnn_run(d->backward_data);
}

const gw_layer_kind gw_dense = {
    .name = "dense",
    .usage = "dense CHANNELS [nobias] [relu]",
    .about = "fully connected; on a sequence, the same weights at every position",
    .words = words,
    .configure = configure,
    .create = create,
    .forward = forward,
    .backward_parameters = backward_parameters,
    .backward_rest = backward_rest,
    .factors = factors,
    .backward_input = backward_input,
};
