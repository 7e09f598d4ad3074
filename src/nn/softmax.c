/* softmax.c - softmax over each position's channels. Not needed before the loss, which takes raw scores (logits). */
#include "nn/layer.h"

static const gw_word words[] = {{.name = NULL}};

typedef struct softmax {
    gw_dnn_op *forward, *backward;
} softmax;

static gw_status configure(gw_spec *spec, gw_graph_node *node, gw_error *error) {
    (void)spec, (void)error;
    node->out = node->in;
    node->flops = 4 * gw_shape_count(node->in);
    return GW_OK;
}

static void create(gw_layer *layer) {
    gw_dnn *dnn = layer->dnn;
    softmax *s = layer->own = gw_dnn_alloc(dnn, sizeof *s);
    if (!s) return;
    int rows = layer->batch * gw_shape_positions(layer->node->in);
    gw_md md = gw_md_plain(2, (int[]){rows, layer->node->in.channels});
    dnnl_memory_t output = gw_dnn_memory(dnn, &md, layer->output);
    dnnl_softmax_desc_t desc;
    dnnl_softmax_forward_desc_init(&desc, dnnl_forward_training, &md, 1);
    s->forward = gw_dnn_operation(dnn, &desc, NULL, GW_POST_OP_NONE);
    gw_operation_set(s->forward, DNNL_ARG_SRC, gw_dnn_memory(dnn, &md, layer->input[0]));
    gw_operation_set(s->forward, DNNL_ARG_DST, output);
    if (!layer->trains || !layer->input_gradient[0]) return;
    dnnl_softmax_backward_desc_init(&desc, &md, &md, 1);
    s->backward = gw_dnn_operation(dnn, &desc, s->forward, GW_POST_OP_NONE);
    gw_operation_set(s->backward, DNNL_ARG_DST, output);
    gw_operation_set(s->backward, DNNL_ARG_DIFF_DST, gw_dnn_memory(dnn, &md, layer->output_gradient));
    gw_operation_set(s->backward, DNNL_ARG_DIFF_SRC, gw_dnn_memory(dnn, &md, layer->input_gradient[0]));
}

static void forward(gw_layer *layer, bool training) {
    (void)training;
    gw_dnn_run(((softmax *)layer->own)->forward);
}

static void backward(gw_layer *layer) { gw_dnn_run(((softmax *)layer->own)->backward); }

const gw_layer_kind gw_softmax = {
    .name = "softmax",
    .usage = "softmax",
    .about = "each position's channels as probabilities",
    .words = words,
    .configure = configure,
    .create = create,
    .forward = forward,
    .backward_input = backward,
};
