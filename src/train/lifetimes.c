/* lifetimes.c - see lifetimes.h: the backward pass is played through once, with slots instead of memory. */
#include "train/lifetimes.h"

#include <stdlib.h>

typedef struct plan {
    const gw_spec *spec;
    gw_lifetimes *l;
    bool *used; /* of each slot */
    int input;  /* the tensor that enters, -1 where its gradient is wanted */
} plan;

/* The smallest free slot that holds it, else the largest free one, made larger, else a new one. */
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

static void play(plan *p, int n) {
    const gw_node *node = &p->spec->nodes[n];
    int out = p->l->slot[node->output];
    bool handed_on = false;
    for (int k = 0; k < node->input_count; k++) {
        int tensor = node->inputs[k];
        if (tensor == p->input) continue;
        size_t count = p->spec->tensors[tensor].count;
        if (p->l->slot[tensor] >= 0)
            p->l->aside[n][k] = take(p, count);
        else if (node->kind == &gw_add && k == 0 && p->spec->tensors[tensor].consumers == 1) {
            p->l->slot[tensor] = out;
            handed_on = true;
        } else
            p->l->slot[tensor] = take(p, count);
    }
    for (int k = 0; k < node->input_count; k++)
        if (p->l->aside[n][k] >= 0) p->used[p->l->aside[n][k]] = false;
    if (!handed_on) p->used[out] = false;
}

gw_status gw_lifetimes_plan(const gw_spec *spec, int first, int end, bool input_gradient, gw_lifetimes *lifetimes,
                            gw_error *error) {
    size_t nodes = (size_t)spec->node_count, tensors = (size_t)spec->tensor_count;
    gw_lifetimes l = {
        .slot = malloc(tensors * sizeof(int)),
        .aside = malloc(nodes * sizeof l.aside[0]),
        .slot_count = calloc(tensors + 2 * nodes, sizeof(size_t)),
    };
    bool *used = calloc(tensors + 2 * nodes, sizeof *used);
    if (!l.slot || !l.aside || !l.slot_count || !used) {
        free(used);
        gw_lifetimes_free(&l);
        return gw_fail(error, GW_MEMORY, "no memory for a model");
    }
    for (size_t i = 0; i < tensors; i++) l.slot[i] = -1;
    for (size_t i = 0; i < nodes; i++) l.aside[i][0] = l.aside[i][1] = -1;
    int input = first ? spec->nodes[first - 1].output : 0, output = spec->nodes[end - 1].output;
    plan p = {.spec = spec, .l = &l, .used = used, .input = input_gradient ? -1 : input};
    l.slot[output] = take(&p, spec->tensors[output].count);
    for (int n = end - 1; n >= first; n--)
        if (!spec->nodes[n].kind->computes_nothing) play(&p, n);
    free(used);
    *lifetimes = l;
    return GW_OK;
}

void gw_lifetimes_free(gw_lifetimes *lifetimes) {
    free(lifetimes->slot);
    free(lifetimes->aside);
    free(lifetimes->slot_count);
    *lifetimes = (gw_lifetimes){0};
}
