/* avgpool.c - the average of a window, or of the whole image. Padding is not included. */
#include <stddef.h>

#include "nn/layer.h"
#include "nn/model_spec.h"
#include "nn/pooling.h"

#define FIELD(name) offsetof(gw_settings, name)

const gw_word gw_pool_words[] = {
    {"KERNEL", GW_WORD_OPERAND, FIELD(kernel), 1, 255},
    {"stride", GW_WORD_VALUE, FIELD(stride), 1, 255},
    {"pad", GW_WORD_VALUE, FIELD(pad), 0, 127},
    {.name = NULL},
};
static const gw_word no_words[] = {{.name = NULL}};

typedef struct pool {
    gw_dnn_op *forward, *backward;
} pool;

gw_status gw_pool_configure(gw_spec *spec, gw_graph_node *node, gw_error *error) {
    (void)spec;
    gw_settings *s = &node->settings;
    if (s->stride == 0) s->stride = s->kernel;
    if (s->pad >= s->kernel)
        return gw_graph_node_fail(node, error, "padding %d leaves windows of %d empty", s->pad, s->kernel);
    if (node->in.height + 2 * s->pad < s->kernel || node->in.width + 2 * s->pad < s->kernel)
        return gw_graph_node_fail(node, error, "a window of %d does not fit into %dx%d with padding %d", s->kernel,
                                  node->in.height, node->in.width, s->pad);
    node->out = (gw_shape){.height = (node->in.height + 2 * s->pad - s->kernel) / s->stride + 1,
                           .width = (node->in.width + 2 * s->pad - s->kernel) / s->stride + 1,
                           .channels = node->in.channels};
    node->flops = (uint64_t)(s->kernel * s->kernel) * gw_shape_count(node->out);
    return GW_OK;
}

static gw_status configure_global(gw_spec *spec, gw_graph_node *node, gw_error *error) {
    (void)spec, (void)error;
    node->out = (gw_shape){.height = 1, .width = 1, .channels = node->in.channels};
    node->flops = gw_shape_count(node->in);
    return GW_OK;
}

typedef struct geometry {
    gw_md input, output;
    dnnl_dims_t strides, kernel, padding;
} geometry;

static geometry measure(const gw_layer *layer) {
    const gw_graph_node *node = layer->node;
    const gw_settings *s = &node->settings;
    geometry g = {.input = gw_md_image(layer->batch, node->in), .output = gw_md_image(layer->batch, node->out)};
    bool global = node->kind == &gw_globalpool;
    g.kernel[0] = global ? node->in.height : s->kernel;
    g.kernel[1] = global ? node->in.width : s->kernel;
    g.strides[0] = g.strides[1] = global ? 1 : s->stride;
    g.padding[0] = g.padding[1] = s->pad;
    return g;
}

static void create(gw_layer *layer) {
    gw_dnn *dnn = layer->dnn;
    pool *p = layer->own = gw_dnn_alloc(dnn, sizeof *p);
    if (!p) return;
    const dnnl_alg_kind_t kind = dnnl_pooling_avg_exclude_padding;
    geometry g = measure(layer);
    dnnl_pooling_desc_t desc;
    dnnl_pooling_forward_desc_init(&desc, dnnl_forward_training, kind, &g.input, &g.output, g.strides, g.kernel,
                                   g.padding, g.padding);
    p->forward = gw_dnn_operation(dnn, &desc, NULL, GW_POST_OP_NONE);
    gw_operation_set(p->forward, DNNL_ARG_SRC, gw_dnn_memory(dnn, &g.input, layer->input[0]));
    gw_operation_set(p->forward, DNNL_ARG_DST, gw_dnn_memory(dnn, &g.output, layer->output));
    if (!layer->trains || !layer->input_gradient[0]) return;
    dnnl_pooling_backward_desc_init(&desc, kind, &g.input, &g.output, g.strides, g.kernel, g.padding, g.padding);
    p->backward = gw_dnn_operation(dnn, &desc, p->forward, GW_POST_OP_NONE);
    gw_operation_set(p->backward, DNNL_ARG_DIFF_DST, gw_dnn_memory(dnn, &g.output, layer->output_gradient));
    gw_operation_set(p->backward, DNNL_ARG_DIFF_SRC, gw_dnn_memory(dnn, &g.input, layer->input_gradient[0]));
}

static void forward(gw_layer *layer, bool training) {
    (void)training;
    gw_dnn_run(((pool *)layer->own)->forward);
}

static void backward(gw_layer *layer) { gw_dnn_run(((pool *)layer->own)->backward); }

const gw_layer_kind gw_avgpool = {
    .name = "avgpool",
    .usage = "avgpool KERNEL [stride N] [pad N]",
    .about = "the average of each window; windows do not overlap unless said otherwise",
    .words = gw_pool_words,
    .configure = gw_pool_configure,
    .create = create,
    .forward = forward,
    .backward_input = backward,
};

const gw_layer_kind gw_globalpool = {
    .name = "globalpool",
    .usage = "globalpool",
    .about = "the average of each channel over the whole image",
    .words = no_words,
    .configure = configure_global,
    .create = create,
    .forward = forward,
    .backward_input = backward,
};
