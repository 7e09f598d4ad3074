/* activation.c - relu and gelu (Hendrycks, Gimpel 2016, the exact form with erf) as separate layers. */
#include "nn/layer.h"

static const gw_word words[] = {{.name = NULL}};

typedef struct activation {
    gw_dnn_op *forward, *backward;
} activation;

static gw_status configure(gw_spec *spec, gw_graph_node *node, gw_error *error) {
    (void)spec, (void)error;
    node->out = node->in;
    node->flops = gw_shape_count(node->in);
    return GW_OK;
}

static void create(gw_layer *layer, dnnl_alg_kind_t kind) {
    gw_dnn *dnn = layer->dnn;
    activation *a = layer->own = gw_dnn_alloc(dnn, sizeof *a);
    if (!a) return;
    int count = layer->batch * (int)gw_shape_count(layer->node->in);
    gw_md md = gw_md_vector(count);
    dnnl_memory_t input = gw_dnn_memory(dnn, &md, layer->input[0]);
    dnnl_eltwise_desc_t desc;
    dnnl_eltwise_forward_desc_init(&desc, dnnl_forward_training, kind, &md, 0, 0);
    a->forward = gw_dnn_operation(dnn, &desc, NULL, GW_POST_OP_NONE);
    gw_operation_set(a->forward, DNNL_ARG_SRC, input);
    gw_operation_set(a->forward, DNNL_ARG_DST, gw_dnn_memory(dnn, &md, layer->output));
    if (!layer->trains || !layer->input_gradient[0]) return;
    dnnl_eltwise_backward_desc_init(&desc, kind, &md, &md, 0, 0);
    a->backward = gw_dnn_operation(dnn, &desc, a->forward, GW_POST_OP_NONE);
    gw_operation_set(a->backward, DNNL_ARG_SRC, input);
    gw_operation_set(a->backward, DNNL_ARG_DIFF_DST, gw_dnn_memory(dnn, &md, layer->output_gradient));
    gw_operation_set(a->backward, DNNL_ARG_DIFF_SRC, gw_dnn_memory(dnn, &md, layer->input_gradient[0]));
}

static void create_relu(gw_layer *layer) { create(layer, dnnl_eltwise_relu); }
static void create_gelu(gw_layer *layer) { create(layer, dnnl_eltwise_gelu_erf); }

static void forward(gw_layer *layer, bool training) {
    (void)training;
    gw_dnn_run(((activation *)layer->own)->forward);
}

static void backward(gw_layer *layer) { gw_dnn_run(((activation *)layer->own)->backward); }

const gw_layer_kind gw_relu = {
    .name = "relu",
    .usage = "relu",
    .about = "max(x, 0) (cheaper as the last word of conv, dense, batchnorm and add)",
    .words = words,
    .configure = configure,
    .create = create_relu,
    .forward = forward,
    .backward_input = backward,
};

const gw_layer_kind gw_gelu = {
    .name = "gelu",
    .usage = "gelu",
    .about = "x times the normal distribution function of x",
    .words = words,
    .configure = configure,
    .create = create_gelu,
    .forward = forward,
    .backward_input = backward,
};
