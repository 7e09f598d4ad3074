/* model_spec.c - see model_spec.h. */
#include "nn/model_spec.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/suggest.h"
#include "base/units.h"
#include "nn/spec_line.h"

#define KINDS_MAX 64

static const char input_usage[] = "input HEIGHT WIDTH CHANNELS, or input tokens POSITIONS VOCABULARY";

/* Appends a zeroed element to a growing array; NULL: no memory. */
static void *grow(void *array_pointer, int *count, size_t size) {
    void **array = array_pointer;
    if ((*count & (*count - 1)) == 0) { /* the capacity is always a power of two */
        size_t capacity = *count ? 2 * (size_t)*count : 1;
        void *moved = realloc(*array, capacity * size);
        if (!moved) return NULL;
        *array = moved;
    }
    void *added = (char *)*array + (size_t)(*count)++ * size;
    memset(added, 0, size);
    return added;
}

static gw_status no_memory(gw_error *error) { return gw_fail(error, GW_MEMORY, "no memory for a model"); }

gw_status gw_graph_node_fail(const gw_graph_node *node, gw_error *error, const char *format, ...) {
    char text[GW_ERROR_TEXT_BYTES];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    return gw_fail(error, GW_INVALID, "line %d: %s: %s", node->line, node->kind->name, text);
}

static gw_status describe(gw_parameter *p, const gw_graph_node *node, gw_declare what, size_t offset, gw_error *error) {
    uint64_t count = 1;
    for (int d = 0; d < what.ndims; d++) count *= (uint64_t)what.dims[d];
    if (count > INT_MAX)
        return gw_graph_node_fail(node, error, "%llu numbers in one parameter are more than %d",
                                  (unsigned long long)count, INT_MAX);
    if (node->label[0]) snprintf(p->name, sizeof p->name, "%s.%s", node->label, what.name);
    else snprintf(p->name, sizeof p->name, "%s%d.%s", node->kind->name, node->ordinal, what.name);
    p->offset = offset;
    p->count = (size_t)count;
    p->ndims = what.ndims;
    memcpy(p->dims, what.dims, sizeof p->dims);
    p->decay = what.decay;
    p->initial = what.initial;
    p->deviation = what.deviation;
    return GW_OK;
}

gw_status gw_spec_add_parameter(gw_spec *spec, gw_graph_node *node, gw_declare what, gw_error *error) {
    size_t offset = gw_spec_parameters(spec);
    gw_parameter *p = grow(&spec->parameters, &spec->parameter_count, sizeof *p);
    if (!p) return no_memory(error);
    node->parameters++;
    return describe(p, node, what, offset, error);
}

gw_status gw_spec_add_buffer(gw_spec *spec, gw_graph_node *node, gw_declare what, gw_error *error) {
    size_t offset = gw_spec_buffers(spec);
    gw_parameter *p = grow(&spec->buffers, &spec->buffer_count, sizeof *p);
    if (!p) return no_memory(error);
    node->buffers++;
    return describe(p, node, what, offset, error);
}

static size_t end_of(const gw_parameter *list, int count) {
    return count ? list[count - 1].offset + list[count - 1].count : 0;
}

size_t gw_spec_parameters(const gw_spec *spec) { return end_of(spec->parameters, spec->parameter_count); }
size_t gw_spec_buffers(const gw_spec *spec) { return end_of(spec->buffers, spec->buffer_count); }

size_t gw_spec_parameters_before(const gw_spec *spec, int node) {
    bool all = node >= spec->node_count;
    return end_of(spec->parameters, all ? spec->parameter_count : spec->nodes[node].first_parameter);
}

size_t gw_spec_buffers_before(const gw_spec *spec, int node) {
    bool all = node >= spec->node_count;
    return end_of(spec->buffers, all ? spec->buffer_count : spec->nodes[node].first_buffer);
}

gw_shape gw_spec_output(const gw_spec *spec) {
    return spec->node_count ? spec->nodes[spec->node_count - 1].out : spec->input;
}

static int tensor_before(const gw_spec *spec, int node) { return node ? spec->nodes[node - 1].output : 0; }

bool gw_spec_can_cut(const gw_spec *spec, int node) {
    if (node <= 0 || node >= spec->node_count) return false;
    int crossing = tensor_before(spec, node);
    for (int i = node; i < spec->node_count; i++)
        for (int k = 0; k < spec->nodes[i].input_count; k++) {
            int tensor = spec->nodes[i].inputs[k];
            if (tensor != crossing && spec->tensors[tensor].producer < node) return false;
        }
    return true;
}

/* --- reading --- */

static gw_status read_input(gw_spec *spec, const gw_spec_line *line, gw_error *error) {
    int64_t numbers[3] = {0};
    bool tokens = line->count > 1 && strcmp(line->words[1], "tokens") == 0;
    bool good = line->count == 4 && strcmp(line->words[0], "input") == 0;
    for (int i = tokens ? 2 : 1; i < 4 && good; i++)
        good = gw_integer_parse(line->words[i], 1, 1 << 20, &numbers[i - 1]);
    if (good && !tokens) good = numbers[0] * numbers[1] <= INT_MAX && numbers[0] * numbers[1] * numbers[2] <= INT_MAX;
    if (!good) return gw_fail(error, GW_INVALID, "line %d: expected %s", line->number, input_usage);
    spec->input = tokens ? (gw_shape){.height = (int)numbers[1], .width = 1, .channels = 1}
                         : (gw_shape){.height = (int)numbers[0], .width = (int)numbers[1], .channels = (int)numbers[2]};
    spec->vocabulary = tokens ? (int)numbers[2] : 0;
    gw_tensor *tensor = grow(&spec->tensors, &spec->tensor_count, sizeof *tensor);
    if (!tensor) return no_memory(error);
    *tensor = (gw_tensor){.count = gw_shape_count(spec->input), .producer = -1};
    return GW_OK;
}

static gw_status find_label(const gw_spec *spec, const gw_spec_line *line, const char *label,
                            const gw_graph_node **found, gw_error *error) {
    char quoted[GW_QUOTE_BYTES];
    for (int i = spec->node_count - 1; i >= 0; i--)
        if (strcmp(spec->nodes[i].label, label) == 0) {
            *found = &spec->nodes[i];
            return GW_OK;
        }
    return gw_fail(error, GW_INVALID, "line %d: no layer before it is called %s (a layer gets a name by `as NAME`)",
                   line->number, gw_suggest_quote(label, quoted));
}

static gw_status set_label(gw_graph_node *node, const gw_spec *spec, const char *label, gw_error *error) {
    if (!label) return GW_OK;
    if (strlen(label) >= sizeof node->label)
        return gw_graph_node_fail(node, error, "a label has at most %zu letters", sizeof node->label - 1);
    for (int i = 0; i < spec->node_count; i++)
        if (strcmp(spec->nodes[i].label, label) == 0)
            return gw_graph_node_fail(node, error, "\"%s\" is already the name of the layer in line %d", label,
                                      spec->nodes[i].line);
    snprintf(node->label, sizeof node->label, "%s", label);
    return GW_OK;
}

static gw_status find_kind(const gw_spec_line *line, const gw_layer_kind **kind, gw_error *error) {
    char quoted[GW_QUOTE_BYTES], hint[GW_HINT_BYTES];
    const char *names[KINDS_MAX] = {NULL};
    *kind = gw_layer_kind_find(line->words[0]);
    if (*kind) return GW_OK;
    for (int i = 0; gw_layer_kinds[i] && i < KINDS_MAX - 1; i++) names[i] = gw_layer_kinds[i]->name;
    return gw_fail(error, GW_INVALID, "line %d: no layer is called %s (%s)", line->number,
                   gw_suggest_quote(line->words[0], quoted), gw_suggest_hint(line->words[0], names, hint));
}

static gw_status check_inputs(const gw_spec *spec, const gw_graph_node *node, const gw_graph_node *second,
                              gw_error *error) {
    bool tokens = spec->vocabulary && node->inputs[0] == 0;
    if (tokens != node->kind->takes_tokens)
        return gw_graph_node_fail(node, error,
                                  tokens ? "the input are tokens; expected embedding before anything else"
                                         : "its input must be the tokens of the model's input");
    if (!second) return GW_OK;
    gw_shape a = node->in, b = second->out;
    if (a.height != b.height || a.width != b.width || a.channels != b.channels)
        return gw_graph_node_fail(node, error, "its inputs differ: %dx%dx%d, and %dx%dx%d of \"%s\"", a.height, a.width,
                                  a.channels, b.height, b.width, b.channels, second->label);
    return GW_OK;
}

/* Sets the inputs of a node; `from` has already been taken out of the line. */
static gw_status connect(gw_spec *spec, gw_graph_node *node, const gw_spec_line *line, const char *from,
                         gw_error *error) {
    const gw_graph_node *first = NULL, *second = NULL;
    gw_status status = GW_OK;
    if (from) status = find_label(spec, line, from, &first, error);
    else if (spec->node_count) first = &spec->nodes[spec->node_count - 1];
    if (status == GW_OK && node->kind->takes_label) {
        if (line->count < 2) return gw_graph_node_fail(node, error, "expected LABEL; usage: %s", node->kind->usage);
        status = find_label(spec, line, line->words[1], &second, error);
    }
    if (status != GW_OK) return status;
    node->in = first ? first->out : spec->input;
    node->inputs[0] = first ? first->output : 0;
    node->input_count = 1;
    if (second) node->inputs[node->input_count++] = second->output;
    return check_inputs(spec, node, second, error);
}

static gw_status give_output(gw_spec *spec, gw_graph_node *node, gw_error *error) {
    if (gw_shape_count(node->out) > INT_MAX)
        return gw_graph_node_fail(node, error, "an output of more than %d numbers is too large", INT_MAX);
    if (node->kind->computes_nothing) {
        node->output = node->inputs[0];
        return GW_OK;
    }
    for (int k = 0; k < node->input_count; k++) spec->tensors[node->inputs[k]].consumers++;
    gw_tensor *tensor = grow(&spec->tensors, &spec->tensor_count, sizeof *tensor);
    if (!tensor) return no_memory(error);
    *tensor = (gw_tensor){.count = gw_shape_count(node->out), .producer = spec->node_count};
    node->output = spec->tensor_count - 1;
    return GW_OK;
}

static gw_status read_layer(gw_spec *spec, gw_spec_line *line, gw_error *error) {
    const char *from, *label;
    gw_graph_node node = {.line = line->number, .ordinal = 1};
    gw_status status = find_kind(line, &node.kind, error);
    if (status == GW_OK) status = gw_spec_line_take(line, "from", &from, error);
    if (status == GW_OK) status = gw_spec_line_take(line, "as", &label, error);
    if (status == GW_OK) status = set_label(&node, spec, label, error);
    if (status == GW_OK) status = connect(spec, &node, line, from, error);
    node.settings = node.kind ? node.kind->defaults : (gw_settings){0};
    if (status == GW_OK)
        status = gw_spec_line_settings(line, node.kind->takes_label ? 2 : 1, node.kind, &node.settings, error);
    if (status != GW_OK) return status;
    for (int i = 0; i < spec->node_count; i++) node.ordinal += spec->nodes[i].kind == node.kind;
    node.first_parameter = spec->parameter_count;
    node.first_buffer = spec->buffer_count;
    status = node.kind->configure(spec, &node, error);
    if (status == GW_OK) status = give_output(spec, &node, error);
    if (status != GW_OK) return status;
    gw_graph_node *added = grow(&spec->nodes, &spec->node_count, sizeof *added);
    if (!added) return no_memory(error);
    *added = node;
    return GW_OK;
}

static gw_status check_used(const gw_spec *spec, gw_error *error) {
    int last = spec->nodes[spec->node_count - 1].output;
    for (int i = 0; i < spec->node_count; i++)
        if (spec->nodes[i].output != last && spec->tensors[spec->nodes[i].output].consumers == 0)
            return gw_graph_node_fail(&spec->nodes[i], error, "no later layer uses its output");
    return GW_OK;
}

static gw_status read_all(gw_spec *spec, const char *text, gw_error *error) {
    gw_spec_line line = {0};
    gw_status status = GW_OK;
    while (*text && status == GW_OK) {
        status = gw_spec_line_read(&line, &text, error);
        if (status != GW_OK || line.count == 0) continue;
        status = spec->tensor_count ? read_layer(spec, &line, error) : read_input(spec, &line, error);
    }
    if (status == GW_OK && spec->parameter_count == 0)
        return gw_fail(error, GW_INVALID,
                       "line %d: the description ends without a layer that learns; it begins with %s", line.number,
                       input_usage);
    return status == GW_OK ? check_used(spec, error) : status;
}

gw_status gw_spec_parse(const char *text, const char *name, gw_spec **spec, gw_error *error) {
    gw_spec *made = calloc(1, sizeof *made);
    if (!made) return no_memory(error);
    gw_error inner = {0};
    gw_status status = read_all(made, text, &inner);
    if (status != GW_OK) {
        gw_spec_destroy(made);
        return gw_fail(error, status, "%s, %s", name, inner.text);
    }
    *spec = made;
    return GW_OK;
}

void gw_spec_destroy(gw_spec *spec) {
    if (!spec) return;
    free(spec->nodes);
    free(spec->tensors);
    free(spec->parameters);
    free(spec->buffers);
    free(spec);
}
