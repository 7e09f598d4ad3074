/* flatten.c - an image as a vector, in the order height, width, channel. No data moves. */
#include "nn/layer.h"

static const gw_word words[] = {{.name = NULL}};

static gw_status configure(gw_spec *spec, gw_graph_node *node, gw_error *error) {
    (void)spec, (void)error;
    node->out = (gw_shape){.height = 1, .width = 1, .channels = (int)gw_shape_count(node->in)};
    return GW_OK;
}

const gw_layer_kind gw_flatten = {
    .name = "flatten",
    .usage = "flatten",
    .about = "an image or a sequence becomes a vector",
    .words = words,
    .computes_nothing = true,
    .configure = configure,
};
