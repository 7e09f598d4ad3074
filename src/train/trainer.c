/* trainer.c - making a trainer, and its steps. See trainer.h. */
#include "train/trainer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/recording.h"
#include "train/vectors.h"

enum { MOVE_PIXELS = 4, STEP_PARTS = 3 };

gw_status gw_trainer_told(const gw_trainer *t, gw_status status, gw_error *error) {
    return status == GW_OK ? GW_OK : gw_fail(error, status, "%s", gw_last_error(t->comm));
}

/* ---- making one ---- */

static gw_status open_data(gw_trainer *t, gw_error *error) {
    gw_dataset_request request = {.source = t->settings.data, .split = GW_SPLIT_TRAIN};
    request.window = t->settings.size.context;
    gw_status status = gw_dataset_open(&request, &t->train, error);
    request.split = GW_SPLIT_TEST;
    if (status == GW_OK) status = gw_dataset_open(&request, &t->test, error);
    if (status == GW_OK)
        status = gw_sampler_create(gw_dataset_describe(t->train)->count, t->settings.batch, t->settings.seed, t->rank,
                                   t->world, &t->sampler, error);
    return status;
}

/* A model by name takes the shape of the data; one from a file has to fit it. */
static gw_status read_model(gw_trainer *t, gw_error *error) {
    const gw_dataset_info *data = gw_dataset_describe(t->train);
    gw_model_size size = t->settings.size;
    const char *model = t->settings.model;
    size.height = data->height;
    size.width = data->width;
    size.channels = data->channels;
    size.classes = data->classes;
    gw_status status = gw_model_spec(model, &size, &t->spec, error);
    if (status != GW_OK) return status;
    bool text = data->kind == GW_DATASET_TEXT;
    if (text != (t->spec->vocabulary > 0))
        return gw_fail(error, GW_INVALID, "the model %s reads %s, but the data set %s holds %s", model,
                       text ? "images" : "text", t->settings.data, text ? "text" : "images");
    gw_shape in = t->spec->input, out = gw_spec_output(t->spec);
    int64_t wanted = (int64_t)gw_shape_count(in),
            held = text ? data->window : (int64_t)data->height * data->width * data->channels;
    if (wanted != held || out.channels < data->classes)
        return gw_fail(error, GW_INVALID,
                       "the model %s takes examples of %lld values and tells %d classes, but those of %s have %lld and "
                       "%d classes",
                       model, (long long)wanted, out.channels, t->settings.data, (long long)held, data->classes);
    t->rows = gw_shape_positions(out);
    return GW_OK;
}

static void plan_rate(gw_trainer *t) {
    uint64_t windows = (uint64_t)gw_trainer_windows(t), total = windows * (uint64_t)t->settings.epochs;
    t->rate = (gw_rate){.kind = t->settings.schedule,
                        .peak = t->settings.rate,
                        .warmup = t->settings.warmup,
                        .total = total,
                        .every = (total + STEP_PARTS - 1) / STEP_PARTS,
                        .factor = 0.1};
}

static gw_status make_parts(gw_trainer *t, gw_error *error) {
    const gw_train_settings *s = &t->settings;
    int64_t share = (s->batch - 1) / t->world + 1, largest = share > GW_TRAIN_TEST_BATCH ? share : GW_TRAIN_TEST_BATCH;
    t->gradients = gw_alloc(t->comm, gw_spec_parameters(t->spec) * sizeof(float));
    t->labels = calloc((size_t)(largest * t->rows), sizeof *t->labels);
    t->gathered = calloc((size_t)t->world, sizeof(gw_train_work) + sizeof(uint64_t));
    t->hashes = calloc((size_t)t->world, sizeof *t->hashes);
    if (!t->gradients || !t->labels || !t->gathered || !t->hashes)
        return gw_fail(error, GW_MEMORY, "no memory for the gradients");
    gw_status status =
        gw_model_create(t->spec, &(gw_model_options){.seed = s->seed, .gradients = t->gradients}, &t->model, error);
    if (status == GW_OK) status = gw_buckets_create(t->comm, t->model, s->bucket_bytes, &t->buckets, error);
    if (status == GW_OK)
        status = gw_optimiser_create(s->optimiser, &s->tuning, t->model->table, t->model->parameters, &t->optimiser,
                                     error);
    return status;
}

gw_status gw_trainer_create(gw_comm *comm, const gw_train_settings *settings, gw_trainer **trainer, gw_error *error) {
    gw_trainer *t = calloc(1, sizeof *t);
    if (!t) return gw_fail(error, GW_MEMORY, "no memory for a trainer");
    *t = (gw_trainer){.settings = *settings, .comm = comm, .rank = gw_rank(comm), .world = gw_size(comm)};
    gw_status status = open_data(t, error);
    if (status == GW_OK) status = read_model(t, error);
    if (status == GW_OK) status = make_parts(t, error);
    if (status != GW_OK) {
        gw_trainer_destroy(t);
        return status;
    }
    plan_rate(t);
    *trainer = t;
    return GW_OK;
}

void gw_trainer_destroy(gw_trainer *t) {
    if (!t) return;
    for (int i = 0; i < GW_TRAIN_PASSES; i++) gw_pass_destroy(t->passes[i]);
    gw_buckets_destroy(&t->buckets);
    gw_optimiser_destroy(t->optimiser);
    gw_model_destroy(t->model);
    gw_free(t->comm, t->gradients);
    gw_spec_destroy(t->spec);
    gw_sampler_destroy(&t->sampler);
    gw_dataset_close(t->test);
    gw_dataset_close(t->train);
    gw_train_tracing_free(&t->tracing);
    free(t->hashes);
    free(t->gathered);
    free(t->labels);
    free(t);
}

/* ---- windows ---- */

int64_t gw_trainer_windows(const gw_trainer *t) {
    return (gw_sampler_steps(&t->sampler) - 1) / t->settings.accumulate + 1;
}

typedef struct window_range {
    int64_t first, end; /* batches */
    int64_t examples;
} window_range;

static window_range range_of(const gw_trainer *t) {
    int64_t steps = gw_sampler_steps(&t->sampler), first = t->window * t->settings.accumulate;
    int64_t end = first + t->settings.accumulate < steps ? first + t->settings.accumulate : steps;
    gw_share from = gw_sampler_batch(&t->sampler, first), to = gw_sampler_batch(&t->sampler, end - 1);
    return (window_range){first, end, to.first + to.count - from.first};
}

int64_t gw_trainer_window_examples(const gw_trainer *t) { return range_of(t).examples; }

/* ---- passes ---- */

gw_status gw_trainer_pass(gw_trainer *t, int64_t batch, bool trains, gw_pass **pass, gw_error *error) {
    int free_place = -1;
    for (int i = 0; i < GW_TRAIN_PASSES; i++) {
        if (!t->passes[i]) {
            free_place = free_place < 0 ? i : free_place;
        } else if (gw_pass_batch(t->passes[i]) == batch && t->pass_trains[i] == trains) {
            *pass = t->passes[i];
            return GW_OK;
        }
    }
    if (free_place < 0) {
        gw_pass_destroy(t->passes[GW_TRAIN_PASSES - 1]);
        t->passes[free_place = GW_TRAIN_PASSES - 1] = NULL;
    }
    gw_status status = gw_pass_create(t->model, &(gw_pass_options){.batch = (int)batch, .trains = trains},
                                      &t->passes[free_place], error);
    t->pass_trains[free_place] = trains;
    *pass = t->passes[free_place];
    return status;
}

void gw_trainer_load(gw_trainer *t, gw_pass *pass, bool trains, int64_t first) {
    const gw_dataset *data = trains ? t->train : t->test;
    const uint32_t *order = trains ? t->sampler.order : NULL;
    gw_augment augment = {.pad = MOVE_PIXELS, .flip = true, .seed = t->settings.seed, .epoch = t->epoch};
    int64_t count = gw_pass_batch(pass);
    if (gw_dataset_describe(data)->kind == GW_DATASET_TEXT)
        gw_dataset_windows(data, order, first, count, (int *)(void *)gw_pass_input(pass), t->labels);
    else
        gw_dataset_batch(data, trains && t->settings.augment ? &augment : NULL, order, first, count,
                         gw_pass_input(pass), t->labels);
}

static void layer_done(void *ctx, int node, bool backward) {
    gw_train_tracing_layer(&((gw_trainer *)ctx)->tracing, node, backward);
}

static void gradient_ready(void *ctx, int parameter) {
    gw_trainer *t = ctx;
    gw_train_tracing_ready(&t->tracing, t->model, parameter);
    gw_buckets_ready(&t->buckets, parameter);
}

/* This rank's share of one batch of the window. */
static gw_status run_batch(gw_trainer *t, int64_t batch, float scale, bool accumulates, bool last, gw_error *error) {
    gw_share share = gw_sampler_share(&t->sampler, batch);
    gw_pass_hooks hooks = {.ctx = t, .layer_done = t->tracing.trace ? layer_done : NULL};
    gw_pass *pass = NULL;
    if (share.count == 0) {
        if (!accumulates) memset(t->gradients, 0, t->model->count * sizeof(float));
        return GW_OK;
    }
    gw_status status = gw_trainer_pass(t, share.count, true, &pass, error);
    if (status != GW_OK) return status;
    gw_trainer_load(t, pass, true, share.first);
    gw_train_tracing_pass(&t->tracing);
    status = gw_pass_forward(pass, true, &hooks, error);
    if (status != GW_OK) return status;
    gw_loss loss = gw_loss_cross_entropy(gw_pass_output(pass), t->labels, share.count * t->rows,
                                         gw_model_output(t->model).channels, scale, gw_pass_output_gradient(pass));
    t->work.loss_sum += loss.sum;
    t->work.correct += loss.correct;
    t->work.counted += loss.counted;
    if (last) gw_train_tracing_loss(&t->tracing, loss.counted ? loss.sum / (double)loss.counted : 0);
    gw_train_tracing_pass(&t->tracing);
    if (last) hooks.gradient_ready = gradient_ready;
    return gw_pass_backward(pass, accumulates, &hooks, error);
}

/* ---- the update ---- */

static double clip_scale(const gw_trainer *t) {
    if (t->settings.clip <= 0) return 1;
    double norm = sqrt(gw_vectors_get()->sum_squares(t->gradients, t->model->count));
    return norm > t->settings.clip ? t->settings.clip / norm : 1;
}

static void apply(gw_trainer *t, int first, int parameters, double scale) {
    gw_update update = {.step = t->updates + 1, .rate = gw_rate_at(&t->rate, t->updates), .scale = scale};
    gw_time begun = gw_clock_now();
    gw_optimiser_step(t->optimiser, t->model->weights, t->gradients, first, parameters, &update);
    gw_train_tracing_applied(&t->tracing, first, parameters, begun);
}

/* Buckets are applied as they arrive, so that the next one travels meanwhile; clipping has to see them all. */
static gw_status update(gw_trainer *t, gw_time *waited, gw_error *error) {
    bool clips = t->settings.clip > 0;
    for (int i = 0; i < t->buckets.count; i++) {
        gw_time begun = gw_clock_now();
        gw_status status = gw_buckets_wait(&t->buckets, i, error);
        *waited += gw_clock_now() - begun;
        if (status != GW_OK) return status;
        if (!clips) apply(t, t->buckets.list[i].first, t->buckets.list[i].parameters, 1);
    }
    if (clips) apply(t, 0, t->model->parameters, clip_scale(t));
    return GW_OK;
}

static void advance(gw_trainer *t) {
    t->updates++;
    if (++t->window < gw_trainer_windows(t)) return;
    t->window = 0;
    gw_sampler_epoch(&t->sampler, ++t->epoch);
}

gw_status gw_trainer_step(gw_trainer *t, gw_error *error) {
    window_range range = range_of(t);
    float scale = (float)(1.0 / (double)(range.examples * t->rows));
    gw_time begun = gw_clock_now(), waited = 0;
    gw_status status = GW_OK;
    gw_train_tracing_begin(&t->tracing, gw_comm_trace(t->comm), t->model, t->updates);
    gw_buckets_begin(&t->buckets);
    for (int64_t b = range.first; b < range.end && status == GW_OK; b++)
        status = run_batch(t, b, scale, b > range.first, b == range.end - 1, error);
    if (status != GW_OK) return status;
    gw_time rest = gw_clock_now(), starting = t->buckets.starting;
    gw_buckets_rest(&t->buckets);
    waited += gw_clock_now() - rest + starting;
    status = update(t, &waited, error);
    if (status != GW_OK) return status;
    gw_train_tracing_end(&t->tracing);
    uint64_t world = (uint64_t)t->world;
    t->work.exposed += waited;
    t->work.compute += gw_clock_now() - begun - waited;
    t->work.bytes += 2 * (world - 1) * t->model->count * sizeof(float) / world;
    advance(t);
    return GW_OK;
}
