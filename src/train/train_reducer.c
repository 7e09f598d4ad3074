/* train_reducer.c - see train_reducer.h. */
#include "train/train_reducer.h"

#include <stdlib.h>
#include <string.h>

#include "base/clip.h"
#include "nn/parameter_graph.h"
#include "nn/vectors.h"
#include "train/trainer.h"

enum { EXCHANGES = 5 };

static gw_status checked(const gw_trainer *t, gw_status status, gw_error *error) {
    return status == GW_OK ? GW_OK : gw_fail(error, status, "%s", gw_last_error(t->peers));
}

/* ---- the optimiser as the reducer's update ---- */

static void update(void *ctx, const gw_reducer_update *u) {
    gw_trainer *t = ctx;
    if (t->timing) return;
    gw_update now = {.step = u->updates,
                     .rate = u->rate_scale * gw_learning_rate_at(&t->rate, u->step),
                     .scale = u->scale,
                     .has_momentum = u->momentum > 0};
    /* Optimisers may overwrite the gradient: it is the reducer's, which no longer needs it. */
    float *gradient = (float *)(uintptr_t)u->gradient, *weights = u->weights;
    if (!u->temporary) {
        gw_optimiser_update(t->optimiser, u->tensor, u->first, u->count, weights, gradient, &now);
        return;
    }
    float rate = (float)now.rate;
    for (size_t i = 0; i < u->count; i++) weights[i] -= rate * gradient[i];
}

static double rate_of(void *ctx, uint64_t step) { return gw_learning_rate_at(&((const gw_trainer *)ctx)->rate, step); }

static float *state(void *ctx, int tensor, int which) {
    gw_trainer *t = ctx;
    if (which >= t->settings.optimiser->states) return NULL;
    return gw_optimiser_state(t->optimiser, which) + t->model->table[tensor].offset;
}

/* ---- commit ---- */

/* In a pipeline the gradient norm spans all stages, but the reducer knows one: so the trainer clips and updates. */
static bool trainer_updates(const gw_trainer *t) { return t->pipeline && t->settings.clip > 0; }

/* The codec may take over a momentum that is a plain sum of gradients: not Nesterov's, not that of steps which lars has
 * scaled by their norm, nor Adam's first moment. */
static void offer_momentum(const gw_trainer *t, gw_reducer_options *options) {
    const gw_optimiser_settings *tuning = &t->settings.tuning;
    bool plain = t->settings.optimiser->plain_momentum && !tuning->nesterov;
    options->momentum_use = plain ? GW_MOMENTUM_OFFERED : GW_MOMENTUM_KEPT;
    options->momentum = plain ? tuning->momentum : 0;
}

static void describe(const gw_trainer *t, const gw_parameter_graph *graph, gw_reducer_tensor *tensors) {
    const gw_model *m = t->model;
    for (int p = 0; p < m->parameters; p++) {
        const gw_parameter *parameter = &m->table[p];
        tensors[p] = (gw_reducer_tensor){.name = parameter->name,
                                         .count = parameter->count,
                                         .dtype = GW_F32,
                                         .gradient = t->gradients + parameter->offset,
                                         .weights = m->weights + parameter->offset,
                                         .rows = parameter->ndims > 1 ? (size_t)parameter->dims[0] : 0,
                                         .exact = !parameter->decay,
                                         .after = graph->before + graph->begin[p],
                                         .after_count = graph->begin[p + 1] - graph->begin[p]};
    }
}

/* The gradient of a fully connected layer may be sent as factors if one pass makes the whole gradient. */
static void offer_factors(const gw_trainer *t, gw_reducer_tensor *tensors) {
    const gw_train_settings *s = &t->settings;
    const gw_model *m = t->model;
    /* An elastic job may shrink to one rank, and rejoining ranks must pass the same value. */
    int fewest = t->elastic ? 1 : t->replicas;
    size_t shard = (size_t)((s->batch - 1) / fewest + 1);
    if (t->pipeline || s->accumulate > 1) return;
    for (int i = m->first; i < m->end; i++) {
        const gw_graph_node *node = &m->spec->nodes[i];
        if (node->kind->factors) tensors[node->first_parameter].batch = shard * (size_t)node->in.height;
    }
}

gw_status gw_trainer_commit(gw_trainer *t, gw_error *error) {
    gw_reducer_tensor *tensors = calloc((size_t)t->model->parameters + 1, sizeof *tensors);
    if (!t->submitted) t->submitted = calloc((size_t)t->model->parameters + 1, sizeof *t->submitted);
    gw_parameter_graph graph = {0};
    gw_status status = GW_OK;
    if (!tensors || !t->submitted) status = gw_fail(error, GW_MEMORY, "no memory for %d tensors", t->model->parameters);
    if (status == GW_OK) status = gw_parameter_graph_make(t->spec, t->model->first, t->model->end, &graph, error);
    if (status != GW_OK) {
        free(tensors);
        return status;
    }
    describe(t, &graph, tensors);
    offer_factors(t, tensors);
    gw_reducer_options options = GW_REDUCER_OPTIONS_DEFAULT;
    options.seed = t->settings.seed;
    options.first_step = t->updates;
    options.ctx = t;
    options.rate = rate_of;
    options.steps = t->rate.total;
    options.optimizer = t->settings.optimiser->name;
    offer_momentum(t, &options);
    options.nonfinite = t->settings.allow_nonfinite ? GW_NONFINITE_COUNTED : GW_NONFINITE_REFUSED;
    if (!trainer_updates(t)) {
        options.update = update;
        options.state = state;
        options.clip = t->settings.clip;
        options.whole_tensors = gw_optimiser_needs_norms(t->optimiser);
    }
    status = gw_reducer_commit(&t->reducer, t->peers, tensors, t->model->parameters, &options);
    gw_parameter_graph_free(&graph);
    free(tensors);
    if (status != GW_OK) return gw_fail(error, status, "%s", gw_last_error(NULL));
    t->over_servers = gw_reducer_has_servers(t->reducer);
    return GW_OK;
}

/* ---- a step ---- */

/* With servers a call that failed because of lost ranks is repeated after the others have regrouped. Without servers
 * the step is dropped, and the caller of gw_trainer_step recovers. */
static gw_status retry(gw_trainer *t, gw_status (*call)(gw_reducer *reducer, int parameter), int parameter,
                       gw_error *error) {
    gw_status status;
    while ((status = checked(t, call(t->reducer, parameter), error)) != GW_OK)
        if (!t->over_servers || (status = gw_trainer_recover(t, status, error)) != GW_OK) break;
    return status;
}

static gw_status end_step(gw_reducer *reducer, int parameter) {
    (void)parameter;
    return gw_reducer_end(reducer);
}

gw_status gw_trainer_wait_parameters(void *ctx, int first, int parameters, gw_error *error) {
    gw_trainer *t = ctx;
    for (int p = first; p < first + parameters; p++) {
        gw_status status = retry(t, gw_reducer_wait, p, error);
        if (status != GW_OK) return status;
    }
    gw_trainer_pass_goes_on(t); /* excludes the wait from the layer's time */
    return GW_OK;
}

int gw_trainer_choose(void *ctx, const int *parameters, int count) {
    int which = 0;
    /* A failure is that of the wait for the layer's parameters, which follows. */
    return gw_reducer_wait_any(((gw_trainer *)ctx)->reducer, parameters, count, &which) == GW_OK ? which : 0;
}

/* Submits the gradient in the tensor's own memory. A tensor that is sent as factors gets factors of 0 examples. */
static gw_status ready_in_place(gw_reducer *reducer, int parameter) {
    if (gw_reducer_wants_factors(reducer, parameter))
        return gw_reducer_ready_factors(reducer, parameter, NULL, NULL, 0);
    return gw_reducer_ready(reducer, parameter);
}

static gw_status submit(gw_trainer *t, int parameter, gw_error *error) {
    t->submitted[parameter] = true;
    return retry(t, ready_in_place, parameter, error);
}

void gw_trainer_gradient_ready(void *ctx, int parameter) {
    gw_trainer *t = ctx;
    if (t->step_error.status == GW_OK) submit(t, parameter, &t->step_error);
}

bool gw_trainer_wants_factors(void *ctx, int parameter) {
    const gw_trainer *t = ctx;
    return gw_reducer_wants_factors(t->reducer, parameter);
}

void gw_trainer_factors_ready(void *ctx, int parameter, gw_layer_factors f) {
    gw_trainer *t = ctx;
    if (t->step_error.status != GW_OK) return;
    t->submitted[parameter] = true;
    checked(t, gw_reducer_ready_factors(t->reducer, parameter, f.left, f.right, f.batch), &t->step_error);
}

void gw_trainer_begin_step(gw_trainer *t) {
    memset(t->submitted, 0, (size_t)t->model->parameters * sizeof *t->submitted);
    t->step_error = (gw_error){.rank = -1};
}

gw_status gw_trainer_submit_rest(gw_trainer *t, gw_error *error) {
    gw_status status = t->step_error.status;
    if (status != GW_OK) *error = t->step_error;
    for (int p = t->model->parameters - 1; p >= 0 && status == GW_OK; p--)
        if (!t->submitted[p]) {
            status = retry(t, gw_reducer_wait, p, error); /* no forward pass has waited for it */
            if (status == GW_OK) status = submit(t, p, error);
        }
    return status == GW_OK ? retry(t, end_step, 0, error) : status;
}

static gw_status clip_and_update(gw_trainer *t, gw_error *error) {
    double squares = gw_vectors_get()->sum_squares(t->gradients, t->model->count);
    gw_status status = gw_pipeline_sum(t, &squares, error);
    gw_update now = {.step = t->updates + 1,
                     .rate = gw_learning_rate_at(&t->rate, t->updates),
                     .scale = gw_clip_factor(squares, t->settings.clip)};
    for (int p = 0; p < t->model->parameters && status == GW_OK && !t->timing; p++) {
        now.has_momentum = gw_reducer_takes_momentum(t->reducer, p) > 0;
        gw_optimiser_step(t->optimiser, t->model->weights, t->gradients, p, 1, &now);
    }
    return status;
}

gw_status gw_trainer_finish_step(gw_trainer *t, gw_error *error) {
    if (!trainer_updates(t)) return GW_OK;
    gw_status status = gw_trainer_flush(t, error);
    return status == GW_OK ? clip_and_update(t, error) : status;
}

gw_status gw_trainer_flush(gw_trainer *t, gw_error *error) {
    return t->reducer ? checked(t, gw_reducer_flush(t->reducer), error) : GW_OK;
}

gw_status gw_trainer_time_exchange(gw_trainer *t, uint64_t *fastest, gw_error *error) {
    *fastest = 0;
    if (!t->reducer || gw_reducer_read_counters(t->reducer).local_optimisers) return GW_OK;
    for (int p = 0; p < t->model->parameters; p++)
        if (gw_reducer_wants_factors(t->reducer, p)) return GW_OK; /* no examples, so no factors to send */
    t->timing = true;
    gw_train_tracing_pause(&t->tracing);
    for (int k = 0; k < EXCHANGES; k++) {
        gw_status status = gw_trainer_check(t, gw_barrier(t->comm), error);
        gw_time begun = gw_clock_now();
        gw_trainer_begin_step(t);
        if (status == GW_OK) status = gw_trainer_submit_rest(t, error);
        if (status == GW_OK) status = gw_trainer_flush(t, error);
        if (status != GW_OK) return status;
        gw_time took = gw_clock_now() - begun;
        if (k == 0 || took < *fastest) *fastest = took;
    }
    t->timing = false;
    return GW_OK;
}
