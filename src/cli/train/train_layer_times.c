/* train_layer_times.c - times the forward and backward pass of each layer of a model on this machine: it runs the
 * trainer's passes on random examples. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/rng.h"
#include "cli/common/trainer_parts.h"
#include "nn/loss.h"
#include "nn/model_text.h"
#include "nn/pass.h"
#include "predict/median.h"

enum { WARM_UP = 2 };
#define SHOW_AFTER (2 * GW_SECOND)

typedef struct recorder {
    const gw_spec *spec;
    gw_model *model;
    gw_pass *pass;
    int32_t *labels;
    int64_t rows;
    int steps, step; /* step below 0: warm-up */
    double *us[2];   /* forward, backward: `steps` times of each layer */
    gw_time last;
} recorder;

/* ---- setup and teardown ---- */

static void close_recorder(recorder *r) {
    free(r->us[0]);
    free(r->us[1]);
    free(r->labels);
    gw_pass_destroy(r->pass);
    gw_model_destroy(r->model);
}

static void make_up_examples(recorder *r) {
    gw_rng rng = gw_rng_make(1, 0);
    size_t count = gw_shape_count(r->spec->input) * (size_t)gw_pass_batch(r->pass);
    int classes = gw_model_output(r->model).channels;
    float *input = gw_pass_input(r->pass);
    int32_t *tokens = (int32_t *)(void *)input;
    for (size_t i = 0; i < count; i++) {
        if (r->spec->vocabulary) tokens[i] = (int32_t)gw_rng_below(&rng, (uint64_t)r->spec->vocabulary);
        else input[i] = (float)gw_rng_unit(&rng);
    }
    for (int64_t i = 0; i < r->rows; i++) r->labels[i] = (int32_t)gw_rng_below(&rng, (uint64_t)classes);
}

static gw_status open_recorder(recorder *r, const gw_spec *spec, int batch, int steps, gw_error *error) {
    *r = (recorder){.spec = spec, .steps = steps};
    gw_status status = gw_model_create(spec, &(gw_model_options){.seed = 1}, &r->model, error);
    if (status == GW_OK)
        status = gw_pass_create(r->model, &(gw_pass_options){.batch = batch, .trains = true}, &r->pass, error);
    if (status != GW_OK) return status;
    r->rows = gw_shape_positions(gw_model_output(r->model)) * batch;
    r->labels = calloc((size_t)r->rows, sizeof *r->labels);
    for (int i = 0; i < 2; i++) r->us[i] = calloc((size_t)(spec->node_count * steps), sizeof *r->us[i]);
    if (!r->labels || !r->us[0] || !r->us[1]) return gw_fail(error, GW_MEMORY, "no memory for the times of layers");
    make_up_examples(r);
    return GW_OK;
}

/* ---- recording ---- */

static void layer_done(void *ctx, int node, bool backward) {
    recorder *r = ctx;
    gw_time now = gw_clock_now();
    if (r->step >= 0) r->us[backward][node * r->steps + r->step] = (double)(now - r->last) / 1e3;
    r->last = now;
}

static gw_status run_step(recorder *r, gw_error *error) {
    gw_pass_hooks hooks = {.ctx = r, .layer_done = layer_done};
    r->last = gw_clock_now();
    gw_status status = gw_pass_forward(r->pass, true, &hooks, error);
    if (status != GW_OK) return status;
    gw_loss_cross_entropy(gw_pass_output(r->pass), r->labels, r->rows, gw_model_output(r->model).channels,
                          1 / (float)r->rows, gw_pass_output_gradient(r->pass));
    r->last = gw_clock_now();
    return gw_pass_backward(r->pass, false, &hooks, error);
}

static gw_status record(recorder *r, gw_error *error) {
    gw_time begun = gw_clock_now();
    bool shown = false;
    gw_status status = GW_OK;
    for (r->step = -WARM_UP; r->step < r->steps && status == GW_OK; r->step++) {
        status = run_step(r, error);
        if (!isatty(STDERR_FILENO) || gw_clock_now() < begun + SHOW_AFTER) continue;
        fprintf(stderr, "\r\033[Ktiming layers: step %d of %d", r->step + 1, r->steps);
        shown = true;
    }
    if (shown) fputs("\r\033[K", stderr);
    return status;
}

/* ---- the profile ---- */

static gw_status make_profile(const recorder *r, const char *name, gw_profile *profile, gw_error *error) {
    const char *slash = strrchr(name, '/');
    *profile = (gw_profile){.batch = gw_pass_batch(r->pass), .count = r->spec->node_count};
    snprintf(profile->name, sizeof profile->name, "%s", slash ? slash + 1 : name);
    profile->layers = calloc((size_t)profile->count, sizeof *profile->layers);
    if (!profile->layers) return gw_fail(error, GW_MEMORY, "no memory for a profile");
    for (int i = 0; i < profile->count; i++) {
        const gw_graph_node *node = &r->spec->nodes[i];
        gw_profile_layer *layer = &profile->layers[i];
        if (node->label[0]) snprintf(layer->name, sizeof layer->name, "%s", node->label);
        else snprintf(layer->name, sizeof layer->name, "%s%d", node->kind->name, node->ordinal);
        snprintf(layer->kind, sizeof layer->kind, "%s", node->kind->name);
        for (int k = 0; k < node->parameters; k++) {
            uint64_t bytes = r->spec->parameters[node->first_parameter + k].count * sizeof(float);
            layer->parameter_bytes += bytes;
            if (k) layer->bias_bytes += bytes;
        }
        layer->forward_us = gw_median(r->us[0] + i * r->steps, r->steps);
        layer->backward_us = gw_median(r->us[1] + i * r->steps, r->steps);
    }
    return GW_OK;
}

gw_status gw_layer_times(const char *model, const gw_model_size *size, int batch, int steps, gw_profile *profile,
                         gw_error *error) {
    gw_spec *spec = NULL;
    gw_status status = gw_model_spec(model, size, &spec, error);
    if (status) return status;
    recorder r;
    status = open_recorder(&r, spec, batch, steps, error);
    if (status == GW_OK) status = record(&r, error);
    if (status == GW_OK) status = make_profile(&r, model, profile, error);
    close_recorder(&r);
    gw_spec_destroy(spec);
    return status;
}
