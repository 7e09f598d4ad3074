/* add.c - residual connection: adds the output of an earlier layer (He, Zhang, Ren, Sun 2016). */
#include <stddef.h>
#include <string.h>

#include "nn/layer.h"
#include "nn/vectors.h"

static const gw_word words[] = {{"relu", GW_WORD_FLAG, offsetof(gw_settings, relu), 0, 1}, {.name = NULL}};

static gw_status configure(gw_spec *spec, gw_graph_node *node, gw_error *error) {
    (void)spec, (void)error;
    node->out = node->in;
    node->flops = gw_shape_count(node->in);
    return GW_OK;
}

static size_t count(const gw_layer *layer) { return (size_t)layer->batch * gw_shape_count(layer->node->in); }

static void create(gw_layer *layer) { (void)layer; }

static void forward(gw_layer *layer, bool training) {
    (void)training;
    const gw_vectors *v = gw_vectors_get();
    (layer->node->settings.relu ? v->sum_relu : v->sum)(layer->output, layer->input[0], layer->input[1], count(layer));
}

static void backward(gw_layer *layer) {
    for (int i = 0; i < 2; i++)
        if (layer->input_gradient[i] && layer->input_gradient[i] != layer->output_gradient)
            memcpy(layer->input_gradient[i], layer->output_gradient, count(layer) * sizeof(float));
}

const gw_layer_kind gw_add = {
    .name = "add",
    .usage = "add LABEL [relu]",
    .about = "adds the output of an earlier layer of the same shape",
    .words = words,
    .takes_label = true,
    .configure = configure,
    .create = create,
    .forward = forward,
    .backward_input = backward,
};
