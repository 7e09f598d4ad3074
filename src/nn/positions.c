/* positions.c - a learned vector for each position of a sequence, added to it. */
#include <string.h>

#include "nn/layer.h"
#include "nn/model_spec.h"
#include "nn/vectors.h"

static const gw_word words[] = {{.name = NULL}};

static gw_status configure(gw_spec *spec, gw_graph_node *node, gw_error *error) {
    node->out = node->in;
    node->flops = gw_shape_count(node->in);
    return gw_spec_add_parameter(spec, node,
                                 (gw_declare){.name = "weight",
                                              .decay = true,
                                              .deviation = 0.02f, /* GPT-2's */
                                              .ndims = 2,
                                              .dims = {gw_shape_positions(node->in), node->in.channels}},
                                 error);
}

static void create(gw_layer *layer) { (void)layer; }

static void forward(gw_layer *layer, bool training) {
    (void)training;
    const gw_vectors *v = gw_vectors_get();
    size_t count = layer->table[0].count;
    for (int n = 0; n < layer->batch; n++)
        v->sum(layer->output + (size_t)n * count, layer->input[0] + (size_t)n * count, gw_layer_weights(layer, 0),
               count);
}

static void backward_parameters(gw_layer *layer) {
    const gw_vectors *v = gw_vectors_get();
    size_t count = layer->table[0].count;
    float *gradient = gw_layer_gradients(layer, 0);
    memcpy(gradient, layer->output_gradient, count * sizeof(float));
    for (int n = 1; n < layer->batch; n++) v->add(gradient, layer->output_gradient + (size_t)n * count, count);
}

static void backward_input(gw_layer *layer) {
    if (layer->input_gradient[0])
        memcpy(layer->input_gradient[0], layer->output_gradient,
               (size_t)layer->batch * layer->table[0].count * sizeof(float));
}

const gw_layer_kind gw_positions = {
    .name = "positions",
    .usage = "positions",
    .about = "adds a learned vector for each position",
    .words = words,
    .configure = configure,
    .create = create,
    .forward = forward,
    .backward_parameters = backward_parameters,
    .backward_input = backward_input,
};
