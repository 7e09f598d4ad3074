/* activation_memory.c - see activation_memory.h. It walks through the backward pass once and assigns slots. */
#include "nn/activation_memory.h"

#include <stdlib.h>

typedef struct plan {
    const gw_spec *spec;
    gw_lifetimes *l;
    bool *used; /* of each slot */
    int input;  /* the input tensor, which gets no slot; -1: its gradient is needed, so it gets one */
} plan;

/* Best fit: the smallest free slot that is large enough, else the largest free one, enlarged, else a new one. */
static int take(plan *p, size_t count) {
    int best = -1;
    for (int s = 0; s < p->l->slots; s++) {
        if (p->used[s]) continue;
        size_t size = p->l->slot_count[s], best_size = best < 0 ? 0 : p->l->slot_count[best];
        bool better = size >= count ? best_size < count || size < best_size : size > best_size;
        if (best < 0 || better) best = s;
    }
    if (best < 0) best = p->l->slots++;
    if (p->l->slot_count[best] < count) p->l->slot_count[best] = count;
    p->used[best] = true;
    return best;
}

static void assign_slots(plan *p, int n) {
    const gw_graph_node *node = &p->spec->nodes[n];
    int out = p->l->slot[node->output];
    bool reused = false; /* the input's gradient takes over the output's slot */
    for (int k = 0; k < node->input_count; k++) {
        int tensor = node->inputs[k];
        if (tensor == p->input) continue;
        size_t count = p->spec->tensors[tensor].count;
        if (p->l->slot[tensor] >= 0) p->l->scratch[n][k] = take(p, count);
        else if (node->kind == &gw_add && k == 0 && p->spec->tensors[tensor].consumers == 1) {
            p->l->slot[tensor] = out;
            reused = true;
        } else p->l->slot[tensor] = take(p, count);
    }
    for (int k = 0; k < node->input_count; k++)
        if (p->l->scratch[n][k] >= 0) p->used[p->l->scratch[n][k]] = false;
    if (!reused) p->used[out] = false;
}

gw_status gw_lifetimes_plan(const gw_spec *spec, int first, int end, bool input_gradient, gw_lifetimes *lifetimes,
                            gw_error *error) {
    size_t nodes = (size_t)spec->node_count, tensors = (size_t)spec->tensor_count;
    gw_lifetimes l = {
        .slot = malloc(tensors * sizeof(int)),
        .scratch = malloc(nodes * sizeof l.scratch[0]),
        .slot_count = calloc(tensors + 2 * nodes, sizeof(size_t)),
    };
    bool *used = calloc(tensors + 2 * nodes, sizeof *used);
    if (!l.slot || !l.scratch || !l.slot_count || !used) {
        free(used);
        gw_lifetimes_free(&l);
        return gw_fail(error, GW_MEMORY, "no memory for a model");
    }
    for (size_t i = 0; i < tensors; i++) l.slot[i] = -1;
    for (size_t i = 0; i < nodes; i++) l.scratch[i][0] = l.scratch[i][1] = -1;
    int input = first ? spec->nodes[first - 1].output : 0, output = spec->nodes[end - 1].output;
    plan p = {.spec = spec, .l = &l, .used = used, .input = input_gradient ? -1 : input};
    l.slot[output] = take(&p, spec->tensors[output].count);
    for (int n = end - 1; n >= first; n--)
        if (!spec->nodes[n].kind->computes_nothing) assign_slots(&p, n);
    free(used);
    *lifetimes = l;
    return GW_OK;
}

void gw_lifetimes_free(gw_lifetimes *lifetimes) {
    free(lifetimes->slot);
    free(lifetimes->scratch);
    free(lifetimes->slot_count);
    *lifetimes = (gw_lifetimes){0};
}
