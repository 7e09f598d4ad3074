/* cmd_profile.c - gradwire profile: times the forward and backward pass of each layer of a model on this machine, and
 * writes the CSV that gradwire bench step and predict read. It runs the trainer's passes on random examples. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/rng.h"
#include "cli/common/model_options.h"
#include "nn/loss.h"
#include "nn/pass.h"
#include "predict/median.h"
#include "profile/profile.h"

enum { WARM_UP = 2, STEPS_MAX = 1000 };
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
        fprintf(stderr, "\r\033[Kstep %d of %d", r->step + 1, r->steps);
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
        for (int k = 0; k < node->parameters; k++)
            layer->parameter_bytes += r->spec->parameters[node->first_parameter + k].count * sizeof(float);
        layer->forward_us = gw_median(r->us[0] + i * r->steps, r->steps);
        layer->backward_us = gw_median(r->us[1] + i * r->steps, r->steps);
    }
    return GW_OK;
}

static gw_status write_profile(const gw_profile *profile, const char *path, gw_error *error) {
    if (path) return gw_profile_write(profile, path, error);
    gw_profile_print(profile, stdout);
    bool whole = fflush(stdout) == 0 && !ferror(stdout);
    return whole ? GW_OK : gw_fail(error, GW_SYSTEM, "cannot write to standard output: %s", strerror(errno));
}

static gw_status profile_model(const gw_spec *spec, const char *name, int batch, int steps, const char *path,
                               gw_error *error) {
    recorder r;
    gw_profile profile = {.count = 0};
    gw_status status = open_recorder(&r, spec, batch, steps, error);
    if (status == GW_OK) status = record(&r, error);
    if (status == GW_OK) status = make_profile(&r, name, &profile, error);
    if (status == GW_OK) status = write_profile(&profile, path, error);
    if (status == GW_OK && path)
        printf("%s: %d layers, %d tensors, %" PRIu64 " bytes of parameters, %.2f ms per step of %d examples\n", path,
               profile.count, gw_profile_tensors(&profile), gw_profile_parameter_bytes(&profile),
               gw_profile_seconds(&profile) * 1e3, batch);
    gw_profile_free(&profile);
    close_recorder(&r);
    return status;
}

static int run(int argc, char **argv) {
    int64_t batch = 32, steps = 20;
    gw_model_size_options given = {0};
    const char *path = NULL;
    const gw_option options[] = {
        GW_SIZE_OPTION("batch", batch, 65536, "examples per step (default: 32)"),
        GW_SIZE_OPTION("steps", steps, STEPS_MAX, "timed steps; the profile has medians (default: 20)"),
        {.name = "output", .letter = 'o', .kind = GW_OPTION_STRING, .value = "FILE", .string = &path,
         .about = "file to write (default: standard output)"},
        GW_SIZE_OPTIONS(given),
        {.name = NULL},
    };
    int code = gw_args_parse(&gw_command_profile, options, &argc, argv);
    if (code >= 0) return code;
    const char *name = argc > 1 ? argv[1] : "cnn";
    gw_model_size size = gw_model_size_of(&given);
    gw_spec *spec = NULL;
    gw_error error = {0};
    gw_status status = gw_model_spec(name, &size, &spec, &error);
    if (status == GW_OK) status = profile_model(spec, name, (int)batch, (int)steps, path, &error);
    gw_spec_destroy(spec);
    if (status == GW_OK) return 0;
    if (status == GW_INVALID) return gw_usage_error(&gw_command_profile, "%s", error.text);
    fprintf(stderr, "gradwire profile: %s\n", error.text);
    return GW_EXIT_FAILED;
}

const gw_command gw_command_profile = {
    .name = "profile",
    .about = "times each layer of a model on this machine, for bench step and predict",
    .usage = "[NAME|FILE] [--batch N] [-o FILE]",
    .example = "gradwire profile resnet20 --batch 32 -o resnet20.csv\n"
               "gradwire bench step --model resnet20.csv -n 4 --lab rate=1gbit",
    .operands_max = 1,
    .run = run,
};
