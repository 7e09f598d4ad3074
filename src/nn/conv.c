/* conv.c - convolution. oneDNN chooses the algorithm (Winograd if available) and the layout of the weights. */
#include <math.h>
#include <stddef.h>

#include "nn/layer.h"
#include "nn/model_spec.h"

#define FIELD(name) offsetof(gw_settings, name)

static const gw_word words[] = {
    {"CHANNELS", GW_WORD_OPERAND, FIELD(channels), 1, 65536},
    {"KERNEL", GW_WORD_OPERAND, FIELD(kernel), 1, 255},
    {"stride", GW_WORD_VALUE, FIELD(stride), 1, 255},
    {"pad", GW_WORD_VALUE, FIELD(pad), 0, 127},
    {"nobias", GW_WORD_FLAG, FIELD(nobias), 0, 1},
    {"relu", GW_WORD_FLAG, FIELD(relu), 0, 1},
    {.name = NULL},
};

typedef struct conv {
    gw_dnn_op *forward, *backward_data, *backward_weights;
    gw_packed weights, weights_again, weight_gradient;
    dnnl_memory_t bias, bias_gradient;
} conv;

static gw_status configure(gw_spec *spec, gw_graph_node *node, gw_error *error) {
    gw_settings *s = &node->settings;
    if (s->pad < 0) s->pad = (s->kernel - 1) / 2;
    if (node->in.height + 2 * s->pad < s->kernel || node->in.width + 2 * s->pad < s->kernel)
        return gw_graph_node_fail(node, error, "a kernel of %d does not fit into %dx%d with padding %d", s->kernel,
                                  node->in.height, node->in.width, s->pad);
    node->out = (gw_shape){.height = (node->in.height + 2 * s->pad - s->kernel) / s->stride + 1,
                           .width = (node->in.width + 2 * s->pad - s->kernel) / s->stride + 1,
                           .channels = s->channels};
    int fan_in = s->kernel * s->kernel * node->in.channels;
    node->flops = 2 * (uint64_t)fan_in * gw_shape_count(node->out);
    gw_status status =
        gw_spec_add_parameter(spec, node,
                              (gw_declare){.name = "weight",
                                           .decay = true,
                                           .deviation = sqrtf(2.0f / (float)fan_in), /* He */
                                           .ndims = 4,
                                           .dims = {s->channels, node->in.channels, s->kernel, s->kernel}},
                              error);
    if (status != GW_OK || s->nobias) return status;
    return gw_spec_add_parameter(spec, node, (gw_declare){.name = "bias", .ndims = 1, .dims = {s->channels}}, error);
}

typedef struct geometry {
    gw_md input, output, weights, weights_plain, bias;
    dnnl_dims_t strides, padding;
} geometry;

static geometry measure(const gw_layer *layer) {
    const gw_graph_node *node = layer->node;
    const gw_settings *s = &node->settings;
    const int dims[] = {s->channels, node->in.channels, s->kernel, s->kernel};
    return (geometry){
        .input = gw_md_image(layer->batch, node->in),
        .output = gw_md_image(layer->batch, node->out),
        .weights = gw_md_any(4, dims),
        .weights_plain = gw_md_plain(4, dims),
        .bias = s->nobias ? (gw_md){0} : gw_md_vector(s->channels),
        .strides = {s->stride, s->stride},
        .padding = {s->pad, s->pad},
    };
}

static void create_forward(gw_layer *layer, conv *c, const geometry *g) {
    gw_dnn *dnn = layer->dnn;
    dnnl_convolution_desc_t desc;
    dnnl_convolution_forward_desc_init(&desc, dnnl_forward_training, dnnl_convolution_auto, &g->input, &g->weights,
                                       &g->bias, &g->output, g->strides, g->padding, g->padding);
    c->forward = gw_dnn_operation(dnn, &desc, NULL, layer->node->settings.relu ? GW_POST_OP_RELU : GW_POST_OP_NONE);
    gw_operation_set(c->forward, DNNL_ARG_SRC, gw_dnn_memory(dnn, &g->input, layer->input[0]));
    gw_operation_set(c->forward, DNNL_ARG_DST, gw_dnn_memory(dnn, &g->output, layer->output));
    c->weights = gw_packed_in(dnn, c->forward, DNNL_ARG_WEIGHTS, dnnl_query_weights_md, &g->weights_plain);
    gw_dnn_bind(c->weights.plain, gw_layer_weights(layer, 0));
    if (layer->node->settings.nobias) return;
    c->bias = gw_dnn_memory(dnn, &g->bias, (void *)(uintptr_t)gw_layer_weights(layer, 1));
    gw_operation_set(c->forward, DNNL_ARG_BIAS, c->bias);
}

static void create_backward_weights(gw_layer *layer, conv *c, const geometry *g) {
    gw_dnn *dnn = layer->dnn;
    dnnl_convolution_desc_t desc;
    dnnl_convolution_backward_weights_desc_init(&desc, dnnl_convolution_auto, &g->input, &g->weights, &g->bias,
                                                &g->output, g->strides, g->padding, g->padding);
    c->backward_weights = gw_dnn_operation(dnn, &desc, c->forward, GW_POST_OP_NONE);
    gw_operation_set(c->backward_weights, DNNL_ARG_SRC, gw_dnn_memory(dnn, &g->input, layer->input[0]));
    gw_operation_set(c->backward_weights, DNNL_ARG_DIFF_DST, gw_dnn_memory(dnn, &g->output, layer->output_gradient));
    c->weight_gradient =
        gw_packed_out(dnn, c->backward_weights, DNNL_ARG_DIFF_WEIGHTS, dnnl_query_diff_weights_md, &g->weights_plain);
    if (layer->node->settings.nobias) return;
    c->bias_gradient = gw_dnn_memory(dnn, &g->bias, NULL);
    gw_operation_set(c->backward_weights, DNNL_ARG_DIFF_BIAS, c->bias_gradient);
}

static void create_backward_data(gw_layer *layer, conv *c, const geometry *g) {
    gw_dnn *dnn = layer->dnn;
    dnnl_convolution_desc_t desc;
    dnnl_convolution_backward_data_desc_init(&desc, dnnl_convolution_auto, &g->input, &g->weights, &g->output,
                                             g->strides, g->padding, g->padding);
    c->backward_data = gw_dnn_operation(dnn, &desc, c->forward, GW_POST_OP_NONE);
    gw_operation_set(c->backward_data, DNNL_ARG_DIFF_SRC, gw_dnn_memory(dnn, &g->input, layer->input_gradient[0]));
    gw_operation_set(c->backward_data, DNNL_ARG_DIFF_DST, gw_dnn_memory(dnn, &g->output, layer->output_gradient));
    c->weights_again = gw_packed_in(dnn, c->backward_data, DNNL_ARG_WEIGHTS, dnnl_query_weights_md, &g->weights_plain);
    gw_dnn_bind(c->weights_again.plain, gw_layer_weights(layer, 0));
}

static void create(gw_layer *layer) {
    conv *c = layer->own = gw_dnn_alloc(layer->dnn, sizeof *c);
    if (!c) return;
    geometry g = measure(layer);
    create_forward(layer, c, &g);
    if (layer->trains) create_backward_weights(layer, c, &g);
    if (layer->trains && layer->input_gradient[0]) create_backward_data(layer, c, &g);
}

static void forward(gw_layer *layer, bool training) {
    (void)training;
    conv *c = layer->own;
    gw_packed_move(c->weights);
    gw_dnn_run(c->forward);
}

static void backward_parameters(gw_layer *layer) {
    conv *c = layer->own;
    gw_dnn_bind(c->weight_gradient.plain, gw_layer_gradients(layer, 0));
    if (c->bias_gradient) gw_dnn_bind(c->bias_gradient, gw_layer_gradients(layer, 1));
    gw_dnn_run(c->backward_weights);
    gw_packed_move(c->weight_gradient);
}

static void backward_input(gw_layer *layer) {
    conv *c = layer->own;
    if (!c->backward_data) return;
    gw_packed_move(c->weights_again);
    gw_dnn_run(c->backward_data);
}

const gw_layer_kind gw_conv = {
    .name = "conv",
    .usage = "conv CHANNELS KERNEL [stride N] [pad N] [nobias] [relu]",
    .about = "convolution with a square kernel; padded to the same size unless said otherwise",
    .words = words,
    .defaults = {.stride = 1, .pad = -1},
    .configure = configure,
    .create = create,
    .forward = forward,
    .backward_parameters = backward_parameters,
    .backward_input = backward_input,
};
