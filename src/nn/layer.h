/* layer.h - the interface of a layer kind. Each kind has its own file; layer_kinds.c has the table.
 *
 * A kind works in two phases: `configure` reads a line of a model's description (settings, shapes, parameters). Then,
 * for each batch size in use, `create` makes operations and memory, which `forward` and `backward` only run. */
#ifndef GW_NN_LAYER_H
#define GW_NN_LAYER_H

#include <stdint.h>

#include "base/status.h"
#include "nn/onednn.h"
#include "nn/shape.h"

#define GW_LABEL_BYTES 24
#define GW_PARAMETER_NAME_BYTES 48
#define GW_PARAMETER_DIMS 4

typedef struct gw_layer_kind gw_layer_kind;
typedef struct gw_spec gw_spec;

/* A trained tensor, or a buffer that a layer keeps from step to step (the running mean of a batch norm). */
typedef struct gw_parameter {
    char name[GW_PARAMETER_NAME_BYTES]; /* conv1.weight */
    size_t offset, count;               /* floats, in the model's memory */
    int dims[GW_PARAMETER_DIMS], ndims; /* row-major; convolutions are out, in, height, width; dense out, in */
    bool decay;                         /* false for biases and norms: no weight decay, no LARS or LAMB scaling */
    float initial, deviation;           /* uniform around initial with this standard deviation; 0: constant */
} gw_parameter;

/* The settings that a line can have; each kind uses some of them. */
typedef struct gw_settings {
    int channels, kernel, stride, pad, heads;
    int nobias, relu;
} gw_settings;

/* One line of a model's description. */
typedef struct gw_graph_node {
    const gw_layer_kind *kind;
    int line;    /* of the description, from 1 */
    int ordinal; /* among those of its kind, from 1 */
    char label[GW_LABEL_BYTES];
    int inputs[2], input_count; /* tensors */
    int output;                 /* tensor; if the kind computes nothing, the same as the input */
    gw_shape in, out;           /* in: of the first input */
    gw_settings settings;
    int first_parameter, parameters;
    int first_buffer, buffers;
    uint64_t flops; /* of the forward pass, one example */
} gw_graph_node;

/* One layer at work, for one batch size. */
typedef struct gw_layer {
    const gw_graph_node *node;
    gw_dnn *dnn;
    int batch;
    float *input[2]; /* the embedding's are int32_t */
    float *output;
    float *output_gradient;
    float *input_gradient[2];  /* NULL: not needed; may be output_gradient itself for add */
    const gw_parameter *table; /* the layer's parameters */
    const float *weights;      /* of the first parameter */
    float *gradients;          /* of the first parameter; set before each backward */
    const gw_parameter *buffer_table;
    float *buffers;
    bool trains; /* backward will be called */
    void *own;   /* the kind's operations, memory of dnn */
} gw_layer;

static inline const float *gw_layer_weights(const gw_layer *layer, int k) {
    return layer->weights + (layer->table[k].offset - layer->table[0].offset);
}
static inline float *gw_layer_gradients(const gw_layer *layer, int k) {
    return layer->gradients + (layer->table[k].offset - layer->table[0].offset);
}
static inline float *gw_layer_buffer(const gw_layer *layer, int k) {
    return layer->buffers + (layer->buffer_table[k].offset - layer->buffer_table[0].offset);
}

/* A weight gradient in factored form: the sum over `batch` of left (batch x rows) times right (batch x columns). */
typedef struct gw_layer_factors {
    const float *left, *right;
    size_t batch;
} gw_layer_factors;

typedef enum gw_word_kind { GW_WORD_OPERAND, GW_WORD_VALUE, GW_WORD_FLAG } gw_word_kind;

/* A word that a line may have: a positional operand, `name N`, or the flag `name`. */
typedef struct gw_word {
    const char *name; /* NULL ends a table */
    gw_word_kind kind;
    size_t field; /* offset in gw_settings */
    int lowest, highest;
} gw_word;

struct gw_layer_kind {
    const char *name;
    const char *usage; /* the whole line */
    const char *about; /* without a full stop */
    const gw_word *words;
    bool takes_label;      /* the first word names an earlier layer: its output is the second input */
    bool takes_tokens;     /* its input is int32_t tokens */
    bool masks_relu;       /* its backward pass includes the relu of the same line */
    bool computes_nothing; /* the output is a view of the input */
    gw_settings defaults;
    /* Sets `out` and `flops` from `settings` and `in`, and declares parameters. */
    gw_status (*configure)(gw_spec *spec, gw_graph_node *node, gw_error *error);
    /* This and all following functions are NULL if computes_nothing. layer->dnn keeps the first error. */
    void (*create)(gw_layer *layer);
    void (*forward)(gw_layer *layer, bool training);
    /* The gradients of its parameters, from output_gradient; NULL: it has no parameters. */
    void (*backward_parameters)(gw_layer *layer);
    /* If the caller takes the first parameter's gradient as factors, backward_rest replaces backward_parameters: it
     * computes only the other gradients. backward_rest and factors are NULL if the kind has no factors. */
    void (*backward_rest)(gw_layer *layer);
    gw_layer_factors (*factors)(const gw_layer *layer);
    /* The gradients of its inputs; runs after backward_parameters. NULL: backward_parameters does both. */
    void (*backward_input)(gw_layer *layer);
};

extern const gw_layer_kind gw_conv, gw_dense, gw_batchnorm, gw_layernorm, gw_relu, gw_gelu, gw_maxpool, gw_avgpool,
    gw_globalpool, gw_flatten, gw_softmax, gw_attention, gw_embedding, gw_positions, gw_add;

/* Every kind, in the order of the documentation; NULL at the end. */
extern const gw_layer_kind *const gw_layer_kinds[];

const gw_layer_kind *gw_layer_kind_find(const char *name);

#endif
