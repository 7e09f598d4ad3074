/* pass.c - see pass.h. */
#include "nn/pass.h"

#include <stdlib.h>
#include <string.h>

#include "nn/activation_memory.h"
#include "nn/vectors.h"

/* Of the forward pass where layers may run in another order: how far it looks, and how many it chooses among. */
enum { LOOKAHEAD = 64, CANDIDATES = 8 };

/* A gradient in a scratch slot (from), and the gradient that it is added to. */
typedef struct addition {
    float *to;
    const float *from;
    size_t count;
} addition;

struct gw_pass {
    gw_model *model;
    gw_pass_options options;
    gw_dnn *dnn;
    gw_layer *layers; /* one for each node of the model */
    addition (*additions)[2];
    bool *done;     /* nodes of the forward pass that runs */
    float *scratch; /* parameter gradients of one layer, before they are added to the accumulated ones */
    float *input, *output, *output_gradient, *input_gradient;
};

typedef struct memory_plan {
    gw_lifetimes lifetimes;
    float **activation; /* of each tensor of the spec */
    float **slot;
} memory_plan;

static const gw_graph_node *node_of(const gw_pass *pass, int i) {
    return &pass->model->spec->nodes[pass->model->first + i];
}
static int nodes(const gw_pass *pass) { return pass->model->end - pass->model->first; }

static int input_tensor(const gw_model *model) {
    return model->first ? model->spec->nodes[model->first - 1].output : 0;
}

static float *floats(gw_pass *pass, size_t count) {
    return gw_dnn_alloc(pass->dnn, (size_t)pass->options.batch * count * sizeof(float));
}

static gw_status plan_memory(gw_pass *pass, memory_plan *plan, gw_error *error) {
    const gw_spec *spec = pass->model->spec;
    gw_status status = gw_lifetimes_plan(spec, pass->model->first, pass->model->end, pass->options.input_gradient,
                                         &plan->lifetimes, error);
    if (status != GW_OK) return status;
    plan->activation = calloc((size_t)spec->tensor_count, sizeof *plan->activation);
    plan->slot = calloc((size_t)plan->lifetimes.slots, sizeof *plan->slot);
    if (!plan->activation || !plan->slot) return gw_fail(error, GW_MEMORY, "no memory for a model");
    int input = input_tensor(pass->model);
    plan->activation[input] = floats(pass, spec->tensors[input].count);
    for (int i = 0; i < nodes(pass); i++) {
        const gw_graph_node *node = node_of(pass, i);
        if (!node->kind->computes_nothing)
            plan->activation[node->output] = floats(pass, spec->tensors[node->output].count);
    }
    for (int s = 0; pass->options.trains && s < plan->lifetimes.slots; s++)
        plan->slot[s] = floats(pass, plan->lifetimes.slot_count[s]);
    return gw_dnn_status(pass->dnn, error);
}

static void free_plan(memory_plan *plan) {
    gw_lifetimes_free(&plan->lifetimes);
    free(plan->activation);
    free(plan->slot);
}

static float *gradient_of(const memory_plan *plan, int tensor) {
    int slot = plan->lifetimes.slot[tensor];
    return slot < 0 ? NULL : plan->slot[slot];
}

static void connect(gw_pass *pass, const memory_plan *plan, int i) {
    const gw_model *m = pass->model;
    const gw_graph_node *node = node_of(pass, i);
    gw_layer *layer = &pass->layers[i];
    *layer = (gw_layer){
        .node = node,
        .dnn = pass->dnn,
        .batch = pass->options.batch,
        .trains = pass->options.trains,
        .output = plan->activation[node->output],
        .output_gradient = gradient_of(plan, node->output),
        .table = m->table + (node->first_parameter - m->spec->nodes[m->first].first_parameter),
        .buffer_table = m->buffer_table + (node->first_buffer - m->spec->nodes[m->first].first_buffer),
    };
    layer->weights = m->weights + layer->table->offset;
    layer->buffers = m->buffers + layer->buffer_table->offset;
    for (int k = 0; k < node->input_count; k++) {
        int scratch = plan->lifetimes.scratch[m->first + i][k];
        layer->input[k] = plan->activation[node->inputs[k]];
        layer->input_gradient[k] = gradient_of(plan, node->inputs[k]);
        if (scratch < 0 || !pass->options.trains) continue;
        pass->additions[i][k] = (addition){.to = layer->input_gradient[k],
                                           .from = plan->slot[scratch],
                                           .count = (size_t)layer->batch * m->spec->tensors[node->inputs[k]].count};
        layer->input_gradient[k] = plan->slot[scratch];
    }
}

static void create_layers(gw_pass *pass, const memory_plan *plan) {
    size_t most = 0;
    for (int i = 0; i < nodes(pass); i++) {
        const gw_graph_node *node = node_of(pass, i);
        size_t count = 0;
        connect(pass, plan, i);
        for (int k = 0; k < node->parameters; k++) count += pass->layers[i].table[k].count;
        if (count > most) most = count;
        if (!node->kind->computes_nothing) node->kind->create(&pass->layers[i]);
    }
    if (pass->options.trains) pass->scratch = gw_dnn_alloc(pass->dnn, most * sizeof(float));
    pass->input = plan->activation[input_tensor(pass->model)];
    pass->output = pass->layers[nodes(pass) - 1].output;
    pass->output_gradient = pass->layers[nodes(pass) - 1].output_gradient;
    if (pass->options.input_gradient) pass->input_gradient = gradient_of(plan, input_tensor(pass->model));
    gw_dnn_finish(pass->dnn);
}

gw_status gw_pass_create(gw_model *model, const gw_pass_options *options, gw_pass **pass, gw_error *error) {
    gw_pass *made = calloc(1, sizeof *made);
    memory_plan plan = {0};
    gw_status status = GW_MEMORY;
    if (!made) goto no_memory;
    *made = (gw_pass){.model = model, .options = *options};
    made->layers = calloc((size_t)nodes(made), sizeof *made->layers);
    made->additions = calloc((size_t)nodes(made), sizeof made->additions[0]);
    made->done = calloc((size_t)nodes(made), sizeof *made->done);
    if (!made->layers || !made->additions || !made->done) goto no_memory;
    status = gw_dnn_create(&made->dnn, error);
    if (status == GW_OK) status = plan_memory(made, &plan, error);
    if (status != GW_OK) goto fail;
    create_layers(made, &plan);
    status = gw_dnn_status(made->dnn, error);
    if (status != GW_OK) goto fail;
    free_plan(&plan);
    *pass = made;
    return GW_OK;
no_memory:
    gw_fail(error, GW_MEMORY, "no memory for a model");
fail:
    free_plan(&plan);
    gw_pass_destroy(made);
    return status;
}

void gw_pass_destroy(gw_pass *pass) {
    if (!pass) return;
    gw_dnn_destroy(pass->dnn);
    free(pass->layers);
    free(pass->additions);
    free(pass->done);
    free(pass);
}

float *gw_pass_input(gw_pass *pass) { return pass->input; }
const float *gw_pass_output(const gw_pass *pass) { return pass->output; }
float *gw_pass_output_gradient(gw_pass *pass) { return pass->output_gradient; }
const float *gw_pass_input_gradient(const gw_pass *pass) { return pass->input_gradient; }
int gw_pass_batch(const gw_pass *pass) { return pass->options.batch; }
size_t gw_pass_bytes(const gw_pass *pass) { return gw_dnn_bytes(pass->dnn); }

static int first_parameter(const gw_pass *pass, const gw_layer *layer) {
    return (int)(layer->table - pass->model->table);
}

static bool has_inputs(const gw_pass *pass, int i) {
    const gw_graph_node *node = node_of(pass, i);
    for (int k = 0; k < node->input_count; k++) {
        int from = pass->model->spec->tensors[node->inputs[k]].producer - pass->model->first;
        if (from >= 0 && !pass->done[from]) return false;
    }
    return true;
}

/* The node to run next; all before `from` are done, so that one can run. */
static int next_node(const gw_pass *pass, int from, const gw_pass_hooks *hooks) {
    int candidates[CANDIDATES], parameters[CANDIDATES], count = 0;
    for (int i = from; i < nodes(pass) && i < from + LOOKAHEAD && count < CANDIDATES; i++) {
        if (pass->done[i] || !has_inputs(pass, i)) continue;
        if (!node_of(pass, i)->parameters) return i;
        candidates[count] = i;
        parameters[count++] = first_parameter(pass, &pass->layers[i]);
    }
    return candidates[count > 1 ? hooks->choose(hooks->ctx, parameters, count) : 0];
}

static gw_status forward_layer(gw_pass *pass, int i, bool training, const gw_pass_hooks *hooks, gw_error *error) {
    gw_layer *layer = &pass->layers[i];
    const gw_graph_node *node = layer->node;
    if (node->kind->computes_nothing) return GW_OK;
    if (hooks && hooks->needed && node->parameters) {
        gw_status status = hooks->needed(hooks->ctx, first_parameter(pass, layer), node->parameters, error);
        if (status != GW_OK) return status;
    }
    node->kind->forward(layer, training);
    if (hooks && hooks->layer_done) hooks->layer_done(hooks->ctx, pass->model->first + i, false);
    return GW_OK;
}

gw_status gw_pass_forward(gw_pass *pass, bool training, const gw_pass_hooks *hooks, gw_error *error) {
    gw_dnn_enter(pass->dnn);
    memset(pass->done, 0, (size_t)nodes(pass) * sizeof *pass->done);
    for (int from = 0; from < nodes(pass);) {
        int i = hooks && hooks->choose ? next_node(pass, from, hooks) : from;
        gw_status status = forward_layer(pass, i, training, hooks, error);
        if (status != GW_OK) return status;
        pass->done[i] = true;
        while (from < nodes(pass) && pass->done[from]) from++;
    }
    return gw_dnn_status(pass->dnn, error);
}

/* Whether to deliver the gradient of the first parameter as factors. */
static bool factored(const gw_pass *pass, const gw_layer *layer, bool accumulate, const gw_pass_hooks *hooks) {
    return layer->node->kind->factors && !accumulate && hooks && hooks->wants_factors &&
           hooks->wants_factors(hooks->ctx, first_parameter(pass, layer));
}

static void backward_parameters(gw_pass *pass, gw_layer *layer, bool accumulate, bool factors) {
    float *gradients = pass->model->gradients + layer->table->offset;
    size_t count = 0;
    for (int k = 0; k < layer->node->parameters; k++) count += layer->table[k].count;
    layer->gradients = accumulate ? pass->scratch : gradients;
    if (factors) layer->node->kind->backward_rest(layer);
    else layer->node->kind->backward_parameters(layer);
    if (accumulate) gw_vectors_get()->add(gradients, pass->scratch, count);
}

/* Runs after backward_input, which reads the weights: gradient_ready may update them at once. */
static void announce_gradients(const gw_pass *pass, const gw_layer *layer, bool factors, const gw_pass_hooks *hooks) {
    if (!hooks || !hooks->gradient_ready || !layer->node->kind->backward_parameters) return;
    int first = first_parameter(pass, layer);
    for (int k = layer->node->parameters - 1; k >= 0; k--) {
        if (factors && k == 0) hooks->factors_ready(hooks->ctx, first, layer->node->kind->factors(layer));
        else hooks->gradient_ready(hooks->ctx, first + k);
    }
}

static void backward_layer(gw_pass *pass, int i, bool accumulate, const gw_pass_hooks *hooks) {
    gw_layer *layer = &pass->layers[i];
    const gw_layer_kind *kind = layer->node->kind;
    const gw_vectors *v = gw_vectors_get();
    if (layer->node->settings.relu && !kind->masks_relu)
        v->mask(layer->output_gradient, layer->output, (size_t)layer->batch * gw_shape_count(layer->node->out));
    bool factors = factored(pass, layer, accumulate, hooks);
    if (kind->backward_parameters) backward_parameters(pass, layer, accumulate, factors);
    if (kind->backward_input) kind->backward_input(layer);
    announce_gradients(pass, layer, factors, hooks);
    for (int k = 0; k < 2; k++)
        if (pass->additions[i][k].to)
            v->add(pass->additions[i][k].to, pass->additions[i][k].from, pass->additions[i][k].count);
}

gw_status gw_pass_backward(gw_pass *pass, bool accumulate, const gw_pass_hooks *hooks, gw_error *error) {
    gw_dnn_enter(pass->dnn);
    for (int i = nodes(pass) - 1; i >= 0; i--) {
        if (pass->layers[i].node->kind->computes_nothing) continue;
        backward_layer(pass, i, accumulate, hooks);
        if (hooks && hooks->layer_done) hooks->layer_done(hooks->ctx, pass->model->first + i, true);
    }
    return gw_dnn_status(pass->dnn, error);
}
