/* model_spec.h - the text description of a model, one layer per line:
 *
 *     # a comment
 *     input 28 28 1              height, width, channels; or: input tokens 64 256 (positions, vocabulary)
 *     conv 32 3 relu
 *     maxpool 2 as half          a name for the output
 *     conv 64 3 relu from half   an input other than the previous line
 *     add half                   a second input
 *
 * Parsing finds all shapes, parameters and operation counts; it allocates no tensors. */
#ifndef GW_NN_MODEL_SPEC_H
#define GW_NN_MODEL_SPEC_H

#include "nn/layer.h"

typedef struct gw_tensor {
    size_t count;  /* floats of one example */
    int producer;  /* node, -1: the input of the model */
    int consumers; /* nodes that compute with it */
} gw_tensor;

struct gw_spec {
    gw_shape input;
    int vocabulary; /* the input is tokens below this value; 0: the input is floats */
    gw_graph_node *nodes;
    int node_count;
    gw_tensor *tensors; /* the first is the input */
    int tensor_count;
    gw_parameter *parameters; /* contiguous, in forward order */
    int parameter_count;
    gw_parameter *buffers;
    int buffer_count;
};

/* name: of the file or model, for errors. On failure *spec is untouched. */
gw_status gw_spec_parse(const char *text, const char *name, gw_spec **spec, gw_error *error);
void gw_spec_destroy(gw_spec *spec);

size_t gw_spec_parameters(const gw_spec *spec); /* floats */
size_t gw_spec_buffers(const gw_spec *spec);    /* floats */
gw_shape gw_spec_output(const gw_spec *spec);
/* Floats of all nodes before this one; node may be the node count. */
size_t gw_spec_parameters_before(const gw_spec *spec, int node);
size_t gw_spec_buffers_before(const gw_spec *spec, int node);

/* Whether the model may be cut before this node: the later nodes need no tensor but the output of the previous one. */
bool gw_spec_can_cut(const gw_spec *spec, int node);

/* For configure: declares a parameter (or buffer) of the node. */
typedef struct gw_declare {
    const char *name; /* weight */
    bool decay;
    float initial, deviation;
    int dims[GW_PARAMETER_DIMS], ndims;
} gw_declare;
gw_status gw_spec_add_parameter(gw_spec *spec, gw_graph_node *node, gw_declare what, gw_error *error);
gw_status gw_spec_add_buffer(gw_spec *spec, gw_graph_node *node, gw_declare what, gw_error *error);

/* For configure: an error sentence that names the layer's line. */
gw_status gw_graph_node_fail(const gw_graph_node *node, gw_error *error, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
