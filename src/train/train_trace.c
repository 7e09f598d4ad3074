/* train_trace.c - see train_trace.h. */
#include "train/train_trace.h"

#include <stdio.h>
#include <stdlib.h>

#include "runtime/recording.h"

static void register_names(gw_train_tracing *t, const gw_model *model) {
    char text[96];
    const gw_spec *spec = model->spec;
    if (!t->names) t->names = calloc((size_t)spec->node_count + 1, sizeof *t->names);
    if (!t->names) t->trace = NULL;
    for (int i = 0; t->trace && i < spec->node_count; i++) {
        const gw_graph_node *node = &spec->nodes[i];
        if (node->label[0]) snprintf(text, sizeof text, "%s", node->label);
        else snprintf(text, sizeof text, "%s%d", node->kind->name, node->ordinal);
        t->names[i] = gw_trace_name(t->trace, text);
    }
    t->named_in = t->trace ? gw_trace_opened(t->trace) : 0;
    t->loss = gw_trace_name(t->trace, "loss");
}

void gw_train_tracing_begin(gw_train_tracing *t, gw_comm *comm, const gw_model *model, uint64_t step) {
    gw_trace *trace = gw_comm_trace(comm);
    bool is_new = trace && gw_trace_opened(trace) != t->named_in;
    t->trace = trace;
    t->step = step;
    if (!t->stepping || is_new) gw_trace_step_begin(comm);
    if (is_new) register_names(t, model);
    t->stepping = true;
}

void gw_train_tracing_end(gw_train_tracing *t, gw_comm *comm, const gw_reducer *reducer) {
    char line[GW_CAPTURE_TEXT_MAX + 1];
    if (!t->trace) return;
    gw_reducer_strategy(reducer, line, sizeof line);
    gw_trace_step_end(comm, t->step, line);
    t->trace = NULL;
}

void gw_train_tracing_drop(gw_train_tracing *t) {
    t->trace = NULL;
    t->stepping = false;
}

void gw_train_tracing_pause(gw_train_tracing *t) { t->stepping = false; }

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

void gw_train_tracing_loss(gw_train_tracing *t, double loss) { gw_trace_value(t->trace, t->step, t->loss, loss); }
