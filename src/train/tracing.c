/* tracing.c - see tracing.h. */
#include "train/tracing.h"

#include <stdio.h>
#include <stdlib.h>

static void register_names(gw_train_tracing *t, const gw_model *model) {
    char text[96];
    const gw_spec *spec = model->spec;
    t->layers = spec->node_count;
    if (!t->names) t->names = calloc((size_t)(spec->node_count + model->parameters + 1), sizeof *t->names);
    if (!t->names) t->trace = NULL;
    for (int i = 0; t->trace && i < spec->node_count; i++) {
        const gw_node *node = &spec->nodes[i];
        if (node->label[0]) snprintf(text, sizeof text, "%s", node->label);
        else snprintf(text, sizeof text, "%s%d", node->kind->name, node->ordinal);
        t->names[i] = gw_trace_name(t->trace, text);
    }
    for (int i = 0; t->trace && i < model->parameters; i++)
        t->names[t->layers + i] = gw_trace_name(t->trace, model->table[i].name);
    t->named_in = t->trace ? gw_trace_opened(t->trace) : 0;
    t->loss = gw_trace_name(t->trace, "loss");
}

void gw_train_tracing_begin(gw_train_tracing *t, gw_trace *trace, const gw_model *model, uint64_t step) {
    bool is_new = trace && gw_trace_opened(trace) != t->named_in;
    t->trace = trace;
    t->step = step;
    if (is_new) register_names(t, model);
    if (t->trace) t->began = gw_trace_now(t->trace);
}

void gw_train_tracing_end(gw_train_tracing *t) {
    if (t->trace) gw_trace_span(t->trace, GW_TRACE_STEP, t->step, 0, 0, 0, t->began, gw_trace_now(t->trace));
}

void gw_train_tracing_free(gw_train_tracing *t) { free(t->names); }

void gw_train_tracing_pass(gw_train_tracing *t) {
    if (t->trace) t->layer_began = gw_trace_now(t->trace);
}

void gw_train_tracing_layer(gw_train_tracing *t, int node, bool backward) {
    if (!t->trace) return;
    gw_time now = gw_trace_now(t->trace);
    gw_trace_span(t->trace, backward ? GW_TRACE_BACKWARD : GW_TRACE_FORWARD, t->step, t->names[node], 0, 0,
                  t->layer_began, now);
    t->layer_began = now;
}

void gw_train_tracing_ready(gw_train_tracing *t, const gw_model *model, int parameter) {
    if (!t->trace) return;
    gw_time now = gw_trace_now(t->trace);
    gw_trace_span(t->trace, GW_TRACE_READY, t->step, t->names[t->layers + parameter], 0,
                  model->table[parameter].count * sizeof(float), now, now);
}

void gw_train_tracing_applied(gw_train_tracing *t, int first, int parameters, gw_time begin) {
    if (t->trace)
        gw_trace_span(t->trace, GW_TRACE_APPLIED, t->step, t->names[t->layers + first], (uint32_t)parameters, 0, begin,
                      gw_trace_now(t->trace));
}

void gw_train_tracing_loss(gw_train_tracing *t, double loss) { gw_trace_value(t->trace, t->step, t->loss, loss); }
