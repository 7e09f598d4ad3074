/* parameter_graph.c - see parameter_graph.h. */
#include "nn/parameter_graph.h"

#include <stdlib.h>
#include <string.h>

typedef struct search {
    const gw_spec *spec;
    int first;  /* node */
    int base;   /* its first parameter */
    bool *seen; /* of each node */
    gw_parameter_graph graph;
    size_t room, used; /* of graph.before */
} search;

static bool append(search *s, int parameter) {
    if (s->used == s->room) {
        int *grown = realloc(s->graph.before, 2 * s->room * sizeof *grown);
        if (!grown) return false;
        s->graph.before = grown;
        s->room *= 2;
    }
    s->graph.before[s->used++] = parameter - s->base;
    return true;
}

/* Appends the last parameter of the layers that produce the inputs of a node. */
static bool collect(search *s, int node) {
    for (int k = 0; k < s->spec->nodes[node].input_count; k++) {
        int from = s->spec->tensors[s->spec->nodes[node].inputs[k]].producer;
        if (from < s->first || s->seen[from]) continue;
        const gw_graph_node *producer = &s->spec->nodes[from];
        s->seen[from] = true;
        bool done =
            producer->parameters ? append(s, producer->first_parameter + producer->parameters - 1) : collect(s, from);
        if (!done) return false;
    }
    return true;
}

static bool visit(search *s, int node) {
    const gw_graph_node *n = &s->spec->nodes[node];
    for (int k = 0; k < n->parameters; k++) {
        s->graph.begin[s->graph.count++] = (int)s->used;
        memset(s->seen, 0, (size_t)s->spec->node_count * sizeof *s->seen);
        if (!(k ? append(s, n->first_parameter + k - 1) : collect(s, node))) return false;
    }
    return true;
}

gw_status gw_parameter_graph_make(const gw_spec *spec, int first, int end, gw_parameter_graph *graph, gw_error *error) {
    search s = {.spec = spec, .first = first, .base = spec->nodes[first].first_parameter, .room = 64};
    s.seen = calloc((size_t)spec->node_count, sizeof *s.seen);
    s.graph.begin = calloc((size_t)spec->parameter_count + 1, sizeof *s.graph.begin);
    s.graph.before = calloc(s.room, sizeof *s.graph.before);
    bool done = s.seen && s.graph.begin && s.graph.before;
    for (int i = first; i < end && done; i++) done = visit(&s, i);
    free(s.seen);
    if (!done) {
        gw_parameter_graph_free(&s.graph);
        return gw_fail(error, GW_MEMORY, "no memory for the graph of a model");
    }
    s.graph.begin[s.graph.count] = (int)s.used;
    *graph = s.graph;
    return GW_OK;
}

void gw_parameter_graph_free(gw_parameter_graph *graph) {
    free(graph->before);
    free(graph->begin);
    *graph = (gw_parameter_graph){0};
}
