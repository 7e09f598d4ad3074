/* embedding.c - a vector for each token: forward looks rows up, backward adds to the rows that were used. */
#include <stddef.h>
#include <string.h>

#include "nn/layer.h"
#include "nn/model_spec.h"
#include "nn/vectors.h"

static const gw_word words[] = {
    {"CHANNELS", GW_WORD_OPERAND, offsetof(gw_settings, channels), 1, 65536},
    {.name = NULL},
};

static gw_status configure(gw_spec *spec, gw_graph_node *node, gw_error *error) {
    node->out = (gw_shape){.height = node->in.height, .width = 1, .channels = node->settings.channels};
    return gw_spec_add_parameter(spec, node,
                                 (gw_declare){.name = "weight",
                                              .decay = true,
                                              .deviation = 0.02f, /* GPT-2's */
                                              .ndims = 2,
                                              .dims = {spec->vocabulary, node->settings.channels}},
                                 error);
}

static void create(gw_layer *layer) { (void)layer; }

static void forward(gw_layer *layer, bool training) {
    (void)training;
    const int32_t *tokens = (const int32_t *)layer->input[0];
    int rows = layer->batch * layer->node->in.height, width = layer->node->out.channels;
    for (int r = 0; r < rows; r++) {
        if (tokens[r] < 0 || tokens[r] >= layer->table[0].dims[0]) {
            gw_dnn_fail(layer->dnn, "token %d at place %d of the batch is outside the vocabulary of %d", tokens[r], r,
                        layer->table[0].dims[0]);
            return;
        }
        memcpy(layer->output + (size_t)r * width, gw_layer_weights(layer, 0) + (size_t)tokens[r] * width,
               (size_t)width * sizeof(float));
    }
}

static void backward(gw_layer *layer) {
    const gw_vectors *v = gw_vectors_get();
    const int32_t *tokens = (const int32_t *)layer->input[0];
    int rows = layer->batch * layer->node->in.height, width = layer->node->out.channels;
    float *gradient = gw_layer_gradients(layer, 0);
    memset(gradient, 0, layer->table[0].count * sizeof(float));
    for (int r = 0; r < rows; r++)
        v->add(gradient + (size_t)tokens[r] * width, layer->output_gradient + (size_t)r * width, (size_t)width);
}

const gw_layer_kind gw_embedding = {
    .name = "embedding",
    .usage = "embedding CHANNELS",
    .about = "a learned vector for each token",
    .words = words,
    .takes_tokens = true,
    .configure = configure,
    .create = create,
    .forward = forward,
    .backward_parameters = backward,
};
