/* exchange.c - see exchange.h. */
#include "train/exchange.h"

#include <stdlib.h>
#include <string.h>

#include "train/trainer.h"
#include "train/vectors.h"

enum { EXCHANGES = 5 };

static gw_status told(const gw_trainer *t, gw_status status, gw_error *error) {
    return status == GW_OK ? GW_OK : gw_fail(error, status, "%s", gw_last_error(t->peers));
}

/* ---- the optimiser, as the step's update ---- */

static void update(void *ctx, const gw_step_update *u) {
    gw_trainer *t = ctx;
    if (t->timing) return;
    gw_update now = {.step = u->step + 1, .rate = gw_rate_at(&t->rate, u->step), .scale = u->scale};
    /* Optimisers may overwrite gradients; these are the step's, which has done with them. */
    float *gradient = (float *)(uintptr_t)u->gradient, *weights = u->weights;
    if (!u->local) {
        gw_optimiser_update(t->optimiser, u->tensor, u->first, u->count, weights, gradient, &now);
        return;
    }
    float rate = (float)now.rate;
    for (size_t i = 0; i < u->count; i++) weights[i] -= rate * gradient[i];
}

static double rate_of(void *ctx, uint64_t step) { return gw_rate_at(&((const gw_trainer *)ctx)->rate, step); }

static float *state(void *ctx, int tensor, int which) {
    gw_trainer *t = ctx;
    if (which >= t->settings.optimiser->states) return NULL;
    return gw_optimiser_state(t->optimiser, which) + t->model->table[tensor].offset;
}

/* ---- commit ---- */

/* A pipeline's norm goes over its stages, which only the trainer knows: it clips and updates by itself there. */
static bool updates_itself(const gw_trainer *t) { return t->pipeline && t->settings.clip > 0; }

static void describe(const gw_trainer *t, gw_step_tensor *tensors) {
    const gw_model *m = t->model;
    for (int p = 0; p < m->parameters; p++) {
        const gw_parameter *parameter = &m->table[p];
        tensors[p] = (gw_step_tensor){.name = parameter->name, .count = parameter->count, .dtype = GW_F32,
                                      .gradient = t->gradients + parameter->offset,
                                      .weights = m->weights + parameter->offset,
                                      .rows = parameter->ndims > 1 ? (size_t)parameter->dims[0] : 0,
                                      .exact = !parameter->decay};
    }
}

/* The weights of a fully connected layer may travel as factors where one pass makes the whole gradient. */
static void offer_factors(const gw_trainer *t, gw_step_tensor *tensors) {
    const gw_train_settings *s = &t->settings;
    const gw_model *m = t->model;
    /* Ranks of an elastic job may become fewer, and those that come back have to say the same. */
    int fewest = t->elastic ? 1 : t->replicas;
    size_t share = (size_t)((s->batch - 1) / fewest + 1);
    if (t->pipeline || s->accumulate > 1) return;
    for (int i = m->first; i < m->end; i++) {
        const gw_node *node = &m->spec->nodes[i];
        if (node->kind->factors) tensors[node->first_parameter].batch = share * (size_t)node->in.height;
    }
}

gw_status gw_trainer_commit(gw_trainer *t, gw_error *error) {
    gw_step_tensor *tensors = calloc((size_t)t->model->parameters + 1, sizeof *tensors);
    if (!t->handed_over) t->handed_over = calloc((size_t)t->model->parameters + 1, sizeof *t->handed_over);
    if (!tensors || !t->handed_over) {
        free(tensors);
        return gw_fail(error, GW_MEMORY, "no memory for %d tensors", t->model->parameters);
    }
    describe(t, tensors);
    offer_factors(t, tensors);
    gw_step_options options = GW_STEP_OPTIONS_DEFAULT;
    options.seed = t->settings.seed;
    options.first_step = t->updates;
    options.ctx = t;
    options.rate = rate_of;
    if (!updates_itself(t)) {
        options.update = update;
        options.state = state;
        options.clip = t->settings.clip;
    }
    gw_status status = gw_step_commit(&t->step, t->peers, tensors, t->model->parameters, &options);
    free(tensors);
    if (status != GW_OK) return gw_fail(error, status, "%s", gw_last_error(NULL));
    t->served = gw_step_served(t->step);
    return GW_OK;
}

/* ---- a step ---- */

/* Over servers a call that failed because ranks were lost is made again when those left have come together. Otherwise
 * the step is over, and whoever trains recovers. */
static gw_status again(gw_trainer *t, gw_status (*call)(gw_step *step, int parameter), int parameter, gw_error *error) {
    gw_status status;
    while ((status = told(t, call(t->step, parameter), error)) != GW_OK)
        if (!t->served || (status = gw_trainer_recover(t, status, error)) != GW_OK) break;
    return status;
}

static gw_status end_step(gw_step *step, int parameter) {
    (void)parameter;
    return gw_step_end(step);
}

gw_status gw_trainer_needed(void *ctx, int first, int parameters, gw_error *error) {
    gw_trainer *t = ctx;
    for (int p = first; p < first + parameters; p++) {
        gw_status status = again(t, gw_step_wait, p, error);
        if (status != GW_OK) return status;
    }
    gw_train_tracing_pass(&t->tracing); /* the layer's own time begins here */
    return GW_OK;
}

/* A gradient that stands in its place; of a tensor that travels as factors, those of no examples. */
static gw_status ready_as_it_is(gw_step *step, int parameter) {
    if (gw_step_wants_factors(step, parameter)) return gw_step_ready_factors(step, parameter, NULL, NULL, 0);
    return gw_step_ready(step, parameter);
}

static gw_status hand_over(gw_trainer *t, int parameter, gw_error *error) {
    t->handed_over[parameter] = true;
    return again(t, ready_as_it_is, parameter, error);
}

void gw_trainer_gradient_ready(void *ctx, int parameter) {
    gw_trainer *t = ctx;
    if (t->step_error.status == GW_OK) hand_over(t, parameter, &t->step_error);
}

bool gw_trainer_wants_factors(void *ctx, int parameter) {
    const gw_trainer *t = ctx;
    return gw_step_wants_factors(t->step, parameter);
}

void gw_trainer_factors_ready(void *ctx, int parameter, gw_layer_factors f) {
    gw_trainer *t = ctx;
    if (t->step_error.status != GW_OK) return;
    t->handed_over[parameter] = true;
    told(t, gw_step_ready_factors(t->step, parameter, f.left, f.right, f.batch), &t->step_error);
}

void gw_trainer_begin_step(gw_trainer *t) {
    memset(t->handed_over, 0, (size_t)t->model->parameters * sizeof *t->handed_over);
    t->step_error = (gw_error){.rank = -1};
}

gw_status gw_trainer_hand_over_rest(gw_trainer *t, gw_error *error) {
    gw_status status = t->step_error.status;
    if (status != GW_OK) *error = t->step_error;
    for (int p = t->model->parameters - 1; p >= 0 && status == GW_OK; p--)
        if (!t->handed_over[p]) {
            status = again(t, gw_step_wait, p, error); /* nothing was computed, so nothing has waited */
            if (status == GW_OK) status = hand_over(t, p, error);
        }
    return status == GW_OK ? again(t, end_step, 0, error) : status;
}

static gw_status clip_and_update(gw_trainer *t, gw_error *error) {
    double squares = gw_vectors_get()->sum_squares(t->gradients, t->model->count);
    gw_status status = gw_pipeline_sum(t, &squares, error);
    double limit = t->settings.clip;
    gw_update now = {.step = t->updates + 1, .rate = gw_rate_at(&t->rate, t->updates),
                     .scale = squares > limit * limit ? limit / __builtin_sqrt(squares) : 1};
    if (status == GW_OK && !t->timing)
        gw_optimiser_step(t->optimiser, t->model->weights, t->gradients, 0, t->model->parameters, &now);
    return status;
}

gw_status gw_trainer_finish_step(gw_trainer *t, gw_error *error) {
    if (!updates_itself(t)) return GW_OK;
    gw_status status = gw_trainer_flush(t, error);
    return status == GW_OK ? clip_and_update(t, error) : status;
}

gw_status gw_trainer_flush(gw_trainer *t, gw_error *error) {
    return t->step ? told(t, gw_step_flush(t->step), error) : GW_OK;
}

gw_status gw_trainer_time_exchange(gw_trainer *t, uint64_t *fastest, gw_error *error) {
    *fastest = 0;
    if (!t->step || gw_step_count(t->step).local) return GW_OK;
    for (int p = 0; p < t->model->parameters; p++)
        if (gw_step_wants_factors(t->step, p)) return GW_OK; /* without examples there are none to send */
    t->timing = true;
    for (int k = 0; k < EXCHANGES; k++) {
        gw_status status = gw_trainer_told(t, gw_barrier(t->comm), error);
        gw_time begun = gw_clock_now();
        gw_trainer_begin_step(t);
        if (status == GW_OK) status = gw_trainer_hand_over_rest(t, error);
        if (status == GW_OK) status = gw_trainer_flush(t, error);
        if (status != GW_OK) return status;
        gw_time took = gw_clock_now() - begun;
        if (k == 0 || took < *fastest) *fastest = took;
    }
    t->timing = false;
    return GW_OK;
}
