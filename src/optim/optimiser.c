/* optimiser.c - see optimiser.h. Iterates over the parameters of a range. */
#include "optim/optimiser.h"

#include <stdlib.h>
#include <string.h>

#include "base/suggest.h"

#define KINDS_MAX 16

const gw_optimiser_kind *const gw_optimiser_kinds[] = {&gw_sgd, &gw_adam, &gw_adamw, &gw_lars, &gw_lamb, NULL};

struct gw_optimiser {
    const gw_optimiser_kind *kind;
    gw_optimiser_settings settings;
    const gw_parameter *table;
    int parameters;
    size_t count; /* floats */
    float *state[GW_OPTIMISER_STATES];
    double *norms;
};

typedef void part_function(const gw_optimiser_settings *settings, gw_parameter_part part, const gw_update *update);

const gw_optimiser_kind *gw_optimiser_find(const char *name, gw_error *error) {
    char quoted[GW_QUOTE_BYTES], hint[GW_HINT_BYTES];
    const char *names[KINDS_MAX] = {NULL};
    for (int i = 0; gw_optimiser_kinds[i]; i++) {
        if (strcmp(name, gw_optimiser_kinds[i]->name) == 0) return gw_optimiser_kinds[i];
        names[i] = gw_optimiser_kinds[i]->name;
    }
    gw_fail(error, GW_INVALID, "no optimiser is called %s (%s)", gw_suggest_quote(name, quoted),
            gw_suggest_hint(name, names, hint));
    return NULL;
}

gw_status gw_optimiser_create(const gw_optimiser_kind *kind, const gw_optimiser_settings *settings,
                              const gw_parameter *table, int parameters, gw_optimiser **optimiser, gw_error *error) {
    gw_optimiser *made = calloc(1, sizeof *made);
    if (!made) return gw_fail(error, GW_MEMORY, "no memory for an optimiser");
    *made = (gw_optimiser){.kind = kind, .settings = *settings, .table = table, .parameters = parameters};
    if (parameters) made->count = table[parameters - 1].offset + table[parameters - 1].count;
    made->norms = calloc(2 * (size_t)parameters + 1, sizeof(double));
    bool good = made->norms != NULL;
    for (int s = 0; s < kind->states && good; s++) {
        made->state[s] = calloc(made->count + 1, sizeof(float));
        good = made->state[s] != NULL;
    }
    if (!good) {
        gw_fail(error, GW_MEMORY, "no memory for %s's state of %zu parameters", kind->name, made->count);
        gw_optimiser_destroy(made);
        return GW_MEMORY;
    }
    *optimiser = made;
    return GW_OK;
}

void gw_optimiser_destroy(gw_optimiser *optimiser) {
    if (!optimiser) return;
    for (int s = 0; s < GW_OPTIMISER_STATES; s++) free(optimiser->state[s]);
    free(optimiser->norms);
    free(optimiser);
}

/* The first parameter that ends after this offset. */
static int parameter_at(const gw_optimiser *o, size_t offset) {
    int low = 0, high = o->parameters;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (o->table[middle].offset + o->table[middle].count > offset) high = middle;
        else low = middle + 1;
    }
    return low;
}

static gw_parameter_part part_of(gw_optimiser *o, int parameter, size_t offset, size_t count, float *weights,
                                 float *gradients) {
    gw_parameter_part part = {.decay = o->table[parameter].decay, .norms = o->norms + 2 * parameter,
                               .weights = weights, .gradients = gradients, .count = count};
    for (int s = 0; s < o->kind->states; s++) part.state[s] = o->state[s] + offset;
    return part;
}

void gw_optimiser_update(gw_optimiser *o, int parameter, size_t first, size_t count, float *weights, float *gradients,
                         const gw_update *update) {
    gw_parameter_part part = part_of(o, parameter, o->table[parameter].offset + first, count, weights, gradients);
    gw_optimiser_forget_norms(o, parameter, 1);
    if (o->kind->prepare) o->kind->prepare(&o->settings, part, update);
    o->kind->apply(&o->settings, part, update);
}

static void walk(gw_optimiser *o, float *weights, float *gradients, size_t offset, size_t count,
                 const gw_update *update, part_function *visit) {
    size_t end = offset + count;
    for (int p = parameter_at(o, offset); p < o->parameters && offset < end; p++) {
        size_t limit = o->table[p].offset + o->table[p].count;
        if (limit > end) limit = end;
        visit(&o->settings, part_of(o, p, offset, limit - offset, weights + offset, gradients + offset), update);
        offset = limit;
    }
}

void gw_optimiser_forget_norms(gw_optimiser *o, int first, int parameters) {
    memset(o->norms + 2 * first, 0, 2 * (size_t)parameters * sizeof(double));
}

void gw_optimiser_prepare(gw_optimiser *o, float *weights, float *gradients, size_t offset, size_t count,
                          const gw_update *update) {
    if (o->kind->prepare) walk(o, weights, gradients, offset, count, update, o->kind->prepare);
}

void gw_optimiser_apply(gw_optimiser *o, float *weights, float *gradients, size_t offset, size_t count,
                        const gw_update *update) {
    walk(o, weights, gradients, offset, count, update, o->kind->apply);
}

void gw_optimiser_step(gw_optimiser *o, float *weights, float *gradients, int first, int parameters,
                       const gw_update *update) {
    if (parameters == 0) return;
    const gw_parameter *last = &o->table[first + parameters - 1];
    size_t offset = o->table[first].offset, count = last->offset + last->count - offset;
    gw_optimiser_forget_norms(o, first, parameters);
    gw_optimiser_prepare(o, weights, gradients, offset, count, update);
    gw_optimiser_apply(o, weights, gradients, offset, count, update);
}

bool gw_optimiser_needs_norms(const gw_optimiser *o) { return o->kind->prepare != NULL; }
double *gw_optimiser_norms(gw_optimiser *o) { return o->norms; }
float *gw_optimiser_state(gw_optimiser *o, int state) { return state < GW_OPTIMISER_STATES ? o->state[state] : NULL; }
size_t gw_optimiser_bytes(const gw_optimiser *o) { return (size_t)o->kind->states * o->count * sizeof(float); }
