/* parameters.c - see parameters.h. */
#include "nn/parameters.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"

#define ALIGNMENT 64
#define ROOT_3 1.7320508075688772 /* half the width of a uniform distribution, in standard deviations */

/* Uniform rather than normal: it needs only additions and products, so the bits do not depend on a math library. */
static void initialise(float *to, const gw_parameter *p, uint64_t seed, uint64_t stream) {
    gw_rng rng = gw_rng_make(seed, stream);
    double width = (double)p->deviation * ROOT_3;
    for (size_t i = 0; i < p->count; i++) {
        double unit = p->deviation > 0 ? (double)gw_rng_u32(&rng) * 0x1p-31 - 1 : 0;
        to[i] = (float)(p->initial + width * unit);
    }
}

static float *floats(size_t count) {
    size_t bytes = (count * sizeof(float) + ALIGNMENT) / ALIGNMENT * ALIGNMENT;
    float *made = aligned_alloc(ALIGNMENT, bytes);
    if (made) memset(made, 0, bytes);
    return made;
}

/* A copy of `count` entries whose first has offset 0; NULL: no memory. */
static gw_parameter *slice(const gw_parameter *from, int count, size_t *total) {
    gw_parameter *table = calloc((size_t)count + 1, sizeof *table);
    if (!table) return NULL;
    *total = 0;
    for (int i = 0; i < count; i++) {
        table[i] = from[i];
        table[i].offset = *total;
        *total += from[i].count;
    }
    return table;
}

static gw_status allocate(gw_model *m, const gw_model_options *o, gw_error *error) {
    const gw_graph_node *first = &m->spec->nodes[m->first], *last = &m->spec->nodes[m->end - 1];
    m->parameters = last->first_parameter + last->parameters - first->first_parameter;
    m->buffer_tensors = last->first_buffer + last->buffers - first->first_buffer;
    m->table = slice(m->spec->parameters + first->first_parameter, m->parameters, &m->count);
    m->buffer_table = slice(m->spec->buffers + first->first_buffer, m->buffer_tensors, &m->buffer_count);
    m->owns_weights = !o->weights;
    m->owns_gradients = !o->gradients;
    m->weights = o->weights ? o->weights : floats(m->count);
    m->gradients = o->gradients ? o->gradients : floats(m->count);
    m->buffers = floats(m->buffer_count);
    if (!m->table || !m->buffer_table || !m->weights || !m->gradients || !m->buffers)
        return gw_fail(error, GW_MEMORY, "no memory for a model of %zu parameters", m->count);
    return GW_OK;
}

gw_status gw_model_create(const gw_spec *spec, const gw_model_options *options, gw_model **model, gw_error *error) {
    int end = options->end ? options->end : spec->node_count;
    if ((options->first && !gw_spec_can_cut(spec, options->first)) ||
        (end != spec->node_count && !gw_spec_can_cut(spec, end)) || options->first >= end)
        return gw_fail(error, GW_INVALID,
                       "a model cannot be cut into the layers %d to %d: more than one tensor would cross",
                       options->first, end);
    gw_model *made = calloc(1, sizeof *made);
    if (!made) return gw_fail(error, GW_MEMORY, "no memory for a model");
    *made = (gw_model){.spec = spec, .first = options->first, .end = end};
    gw_status status = allocate(made, options, error);
    if (status != GW_OK) {
        gw_model_destroy(made);
        return status;
    }
    uint64_t stream = (uint64_t)spec->nodes[made->first].first_parameter;
    for (int i = 0; i < made->parameters; i++)
        initialise(made->weights + made->table[i].offset, &made->table[i], options->seed, stream + (uint64_t)i);
    for (int i = 0; i < made->buffer_tensors; i++)
        initialise(made->buffers + made->buffer_table[i].offset, &made->buffer_table[i], 0, 0);
    *model = made;
    return GW_OK;
}

void gw_model_destroy(gw_model *model) {
    if (!model) return;
    if (model->owns_weights) free(model->weights);
    if (model->owns_gradients) free(model->gradients);
    free(model->buffers);
    free(model->buffer_table);
    free(model->table);
    free(model);
}

gw_shape gw_model_input(const gw_model *model) {
    return model->first ? model->spec->nodes[model->first - 1].out : model->spec->input;
}

gw_shape gw_model_output(const gw_model *model) { return model->spec->nodes[model->end - 1].out; }

size_t gw_model_bytes(const gw_model *model) { return (2 * model->count + model->buffer_count) * sizeof(float); }
