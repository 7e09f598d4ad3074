/* attention.c - causal multi-head attention (Vaswani et al. 2017): a position attends to itself and to earlier ones.
 * The input has queries, keys and values side by side, from one dense layer of three times the width.
 *
 * It computes one head of one example at a time, so the scores stay in the cache between the two products. The
 * backward pass needs the probabilities: batch x heads x positions x positions floats. */
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "nn/layer.h"
#include "nn/model_spec.h"
#include "nn/vectors.h"

static const gw_word words[] = {
    {"HEADS", GW_WORD_OPERAND, offsetof(gw_settings, heads), 1, 1024},
    {.name = NULL},
};

typedef struct attention {
    float *probabilities;
    float *score_gradient; /* of one head */
} attention;

/* One head of one example. The row stride of q, k, v is 3 * width floats, that of the output is width. */
typedef struct head {
    dnnl_dim_t positions, size, stride_in, stride_out;
    size_t input, output; /* offsets: of q in the input, of the result in the output */
    float *probabilities;
    float factor;
} head;

static gw_status configure(gw_spec *spec, gw_graph_node *node, gw_error *error) {
    (void)spec;
    int heads = node->settings.heads, width = node->in.channels / 3;
    if (node->in.width != 1) return gw_graph_node_fail(node, error, "the input is an image, not a sequence");
    if (node->in.channels % 3 || width % heads)
        return gw_graph_node_fail(
            node, error,
            "the input has %d channels; expected queries, keys and values of the same width, and that "
            "divisible by the %d heads",
            node->in.channels, heads);
    node->out = (gw_shape){.height = node->in.height, .width = 1, .channels = width};
    node->flops = 4 * (uint64_t)node->in.height * (uint64_t)node->in.height * (uint64_t)width;
    return GW_OK;
}

static void create(gw_layer *layer) {
    attention *a = layer->own = gw_dnn_alloc(layer->dnn, sizeof *a);
    if (!a) return;
    size_t square = (size_t)layer->node->in.height * (size_t)layer->node->in.height;
    a->probabilities =
        gw_dnn_alloc(layer->dnn, (size_t)layer->batch * layer->node->settings.heads * square * sizeof(float));
    if (layer->trains) a->score_gradient = gw_dnn_alloc(layer->dnn, square * sizeof(float));
}

static head head_of(const gw_layer *layer, int example, int h) {
    const attention *a = layer->own;
    size_t positions = (size_t)layer->node->in.height, width = (size_t)layer->node->out.channels;
    size_t heads = (size_t)layer->node->settings.heads, size = width / heads;
    return (head){
        .positions = (dnnl_dim_t)positions,
        .size = (dnnl_dim_t)size,
        .stride_in = (dnnl_dim_t)(3 * width),
        .stride_out = (dnnl_dim_t)width,
        .input = (size_t)example * positions * 3 * width + (size_t)h * size,
        .output = (size_t)example * positions * width + (size_t)h * size,
        .probabilities = a->probabilities + ((size_t)example * heads + (size_t)h) * positions * positions,
        .factor = 1 / sqrtf((float)size),
    };
}

/* c = a * b, row-major; which: one letter for each operand, `t` = transposed, `n` = not. */
static void product(gw_layer *layer, const char *which, dnnl_dim_t m, dnnl_dim_t n, dnnl_dim_t k, const float *a,
                    dnnl_dim_t a_stride, const float *b, dnnl_dim_t b_stride, float *c, dnnl_dim_t c_stride) {
    if (dnnl_sgemm(which[0], which[1], m, n, k, 1, a, a_stride, b, b_stride, 0, c, c_stride) != dnnl_success)
        gw_dnn_fail(layer->dnn, "oneDNN: a matrix product in attention failed");
}

static void forward_head(gw_layer *layer, head h) {
    const gw_vectors *v = gw_vectors_get();
    dnnl_dim_t t = h.positions;
    const float *q = layer->input[0] + h.input, *k = q + h.stride_out, *values = k + h.stride_out;
    product(layer, "nt", t, t, h.size, q, h.stride_in, k, h.stride_in, h.probabilities, t);
    for (dnnl_dim_t row = 0; row < t; row++) {
        float *scores = h.probabilities + row * t;
        v->softmax(scores, scores, h.factor, (size_t)row + 1);
        memset(scores + row + 1, 0, (size_t)(t - row - 1) * sizeof(float));
    }
    product(layer, "nn", t, h.size, t, h.probabilities, t, values, h.stride_in, layer->output + h.output, h.stride_out);
}

static void backward_head(gw_layer *layer, head h) {
    const gw_vectors *v = gw_vectors_get();
    attention *a = layer->own;
    dnnl_dim_t t = h.positions, in = h.stride_in, width = h.stride_out;
    const float *q = layer->input[0] + h.input, *k = q + width, *values = k + width;
    const float *gradient = layer->output_gradient + h.output;
    float *dq = layer->input_gradient[0] + h.input, *dk = dq + width, *dv = dk + width;
    product(layer, "tn", t, h.size, t, h.probabilities, t, gradient, width, dv, in);
    product(layer, "nt", t, t, h.size, gradient, width, values, in, a->score_gradient, t);
    for (dnnl_dim_t row = 0; row < t; row++)
        v->softmax_backward(a->score_gradient + row * t, h.probabilities + row * t, h.factor, (size_t)t);
    product(layer, "nn", t, h.size, t, a->score_gradient, t, k, in, dq, in);
    product(layer, "tn", t, h.size, t, a->score_gradient, t, q, in, dk, in);
}

static void forward(gw_layer *layer, bool training) {
    (void)training;
    for (int n = 0; n < layer->batch; n++)
        for (int h = 0; h < layer->node->settings.heads; h++) forward_head(layer, head_of(layer, n, h));
}

static void backward(gw_layer *layer) {
    if (!layer->input_gradient[0]) return;
    for (int n = 0; n < layer->batch; n++)
        for (int h = 0; h < layer->node->settings.heads; h++) backward_head(layer, head_of(layer, n, h));
}

const gw_layer_kind gw_attention = {
    .name = "attention",
    .usage = "attention HEADS",
    .about = "causal attention over queries, keys and values that lie side by side",
    .words = words,
    .configure = configure,
    .create = create,
    .forward = forward,
    .backward_input = backward,
};
