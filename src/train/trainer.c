/* trainer.c - creates a trainer and runs its steps. See trainer.h. */
#include "train/trainer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "nn/vectors.h"

enum { MOVE_PIXELS = 4, STEP_PARTS = 3 };

gw_status gw_trainer_check(const gw_trainer *t, gw_status status, gw_error *error) {
    return status == GW_OK ? GW_OK : gw_fail(error, status, "%s", gw_last_error(t->comm));
}

/* ---- creation ---- */

static gw_status open_data(gw_trainer *t, gw_error *error) {
    gw_dataset_request request = {.source = t->settings.data, .split = GW_SPLIT_TRAIN};
    request.window = t->settings.size.context;
    gw_status status = gw_dataset_open(&request, &t->train, error);
    request.split = GW_SPLIT_TEST;
    return status == GW_OK ? gw_dataset_open(&request, &t->test, error) : status;
}

static gw_status make_sampler(gw_trainer *t, gw_error *error) {
    return gw_sampler_create(gw_dataset_describe(t->train)->count, t->settings.batch, t->settings.seed, t->replica,
                             t->replicas, &t->sampler, error);
}

/* A built-in model takes the shape of the data; a model from a file must match it. */
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
                       "the model %s takes examples of %lld values and has %d classes, but those of %s have %lld and "
                       "%d classes",
                       model, (long long)wanted, out.channels, t->settings.data, (long long)held, data->classes);
    t->rows = gw_shape_positions(out);
    return GW_OK;
}

static void plan_rate(gw_trainer *t) {
    uint64_t windows = (uint64_t)gw_trainer_windows(t), total = windows * (uint64_t)t->settings.epochs;
    t->rate = (gw_learning_rate){.kind = t->settings.schedule,
                                 .peak = t->settings.rate,
                                 .warmup = t->settings.warmup,
                                 .total = total,
                                 .every = (total + STEP_PARTS - 1) / STEP_PARTS,
                                 .factor = 0.1};
}

static gw_status allocate(gw_trainer *t, gw_error *error) {
    const gw_train_settings *s = &t->settings;
    int64_t shard = t->elastic ? s->batch : (s->batch - 1) / t->replicas + 1; /* elastic: one rank may be left */
    int64_t largest = shard > GW_TRAIN_TEST_BATCH ? shard : GW_TRAIN_TEST_BATCH;
    gw_model_options options = {.seed = s->seed, .end = t->spec->node_count};
    if (t->pipeline) {
        options.first = t->pipeline->first[t->pipeline->stage];
        options.end = t->pipeline->first[t->pipeline->stage + 1];
    }
    size_t floats = gw_spec_parameters_before(t->spec, options.end) - gw_spec_parameters_before(t->spec, options.first);
    size_t bytes = (floats + !floats) * sizeof(float);
    if (!t->elastic) t->gradients = gw_alloc(t->comm, bytes);
    else if (!posix_memalign((void **)&t->gradients, 4096, bytes)) memset(t->gradients, 0, bytes);
    options.gradients = t->gradients;
    t->labels = calloc((size_t)(largest * t->rows), sizeof *t->labels);
    t->reports = calloc((size_t)t->world, sizeof(gw_train_work) + sizeof(uint64_t));
    t->hashes = calloc((size_t)t->world, sizeof *t->hashes);
    t->workers = calloc((size_t)t->world, sizeof *t->workers);
    t->server_counts = calloc((size_t)t->world, sizeof *t->server_counts);
    if (!t->gradients || !t->labels || !t->reports || !t->hashes || !t->workers || !t->server_counts)
        return gw_fail(error, GW_MEMORY, "no memory for the gradients");
    gw_status status = gw_model_create(t->spec, &options, &t->model, error);
    if (status == GW_OK)
        status =
            gw_optimiser_create(s->optimiser, &s->tuning, t->model->table, t->model->parameters, &t->optimiser, error);
    return status;
}

/* Sets the communicator of the replicas, and which replica this rank belongs to. */
static gw_status open_pipeline(gw_trainer *t, gw_status so_far, gw_error *error) {
    if (!t->settings.pipeline.stages) return so_far;
    gw_status status = gw_pipeline_open(t, so_far, &t->pipeline, error);
    if (status != GW_OK) return status;
    t->peers = t->pipeline->peers;
    t->replica = t->pipeline->replica;
    t->replicas = t->pipeline->replicas;
    return GW_OK;
}

gw_status gw_trainer_create(gw_comm *comm, const gw_train_settings *settings, gw_trainer **trainer, gw_error *error) {
    gw_trainer *t = calloc(1, sizeof *t);
    if (!t) return gw_fail(error, GW_MEMORY, "no memory for a trainer");
    *t = (gw_trainer){.settings = *settings, .comm = comm, .rank = gw_rank(comm), .world = gw_size(comm)};
    t->elastic = gw_trainer_elastic();
    t->peers = comm;
    t->replica = t->rank;
    t->replicas = t->world;
    gw_status status = open_data(t, error);
    if (status == GW_OK) status = read_model(t, error);
    status = open_pipeline(t, status, error);
    if (status == GW_OK) status = make_sampler(t, error);
    if (status == GW_OK) status = allocate(t, error);
    if (status == GW_OK) status = gw_layer_times_open(&t->layers, t->spec->node_count, error);
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
    gw_passes_destroy(&t->passes);
    gw_reducer_close(t->reducer);
    free(t->submitted);
    gw_pipeline_close(t->pipeline);
    gw_optimiser_destroy(t->optimiser);
    gw_model_destroy(t->model);
    if (t->elastic) free(t->gradients);
    else gw_free(t->comm, t->gradients);
    gw_spec_destroy(t->spec);
    gw_sampler_destroy(&t->sampler);
    gw_dataset_close(t->test);
    gw_dataset_close(t->train);
    gw_train_tracing_free(&t->tracing);
    gw_layer_times_close(&t->layers);
    free(t->server_counts);
    free(t->workers);
    free(t->hashes);
    free(t->reports);
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
    gw_data_shard from = gw_sampler_batch(&t->sampler, first), to = gw_sampler_batch(&t->sampler, end - 1);
    return (window_range){first, end, to.first + to.count - from.first};
}

int64_t gw_trainer_window_examples(const gw_trainer *t) { return range_of(t).examples; }

/* ---- passes ---- */

gw_status gw_trainer_pass(gw_trainer *t, int64_t batch, bool trains, gw_pass **pass, gw_error *error) {
    return gw_passes_get(&t->passes, t->model, &(gw_pass_options){.batch = (int)batch, .trains = trains}, pass, error);
}

void gw_trainer_load(gw_trainer *t, gw_pass *pass, bool trains, int64_t first) {
    const gw_dataset *data = trains ? t->train : t->test;
    const uint32_t *order = trains ? t->sampler.order : NULL;
    gw_augment augment = {.pad = MOVE_PIXELS, .flip = true, .seed = t->settings.seed, .epoch = t->epoch};
    int64_t count = gw_pass_batch(pass);
    float *input = t->model->first == 0 ? gw_pass_input(pass) : NULL;
    if (gw_dataset_describe(data)->kind == GW_DATASET_TEXT)
        gw_dataset_windows(data, order, first, count, (int *)(void *)input, t->labels);
    else gw_dataset_batch(data, trains && t->settings.augment ? &augment : NULL, order, first, count, input, t->labels);
}

void gw_trainer_pass_goes_on(gw_trainer *t) {
    gw_layer_times_pass(&t->layers);
    gw_train_tracing_pass(&t->tracing);
}

static void layer_done(void *ctx, int node, bool backward) {
    gw_trainer *t = ctx;
    gw_layer_times_layer(&t->layers, node, backward);
    gw_train_tracing_layer(&t->tracing, node, backward);
}

/* This rank's shard of one batch of the window, without a pipeline. */
static gw_status run_shard(gw_trainer *t, const gw_pipeline_batch *batch, gw_loss *loss, gw_error *error) {
    gw_pass *pass = NULL;
    gw_status status = gw_trainer_pass(t, batch->shard.count, true, &pass, error);
    if (status != GW_OK) return status;
    gw_trainer_load(t, pass, true, batch->shard.first);
    gw_trainer_pass_goes_on(t);
    status = gw_pass_forward(pass, true, batch->hooks, error);
    if (status != GW_OK) return status;
    *loss = gw_loss_cross_entropy(gw_pass_output(pass), t->labels, batch->shard.count * t->rows,
                                  gw_model_output(t->model).channels, batch->scale, gw_pass_output_gradient(pass));
    status = gw_trainer_check_loss(t, loss, error);
    if (status != GW_OK) return status;
    gw_pass_hooks hooks = *batch->hooks;
    if (!batch->last) hooks.gradient_ready = NULL;
    gw_trainer_pass_goes_on(t);
    return gw_pass_backward(pass, batch->accumulates, &hooks, error);
}

static gw_status run_batch(gw_trainer *t, int64_t number, const window_range *range, gw_error *error) {
    gw_pass_hooks hooks = {.ctx = t,
                           .needed = gw_trainer_wait_parameters,
                           .choose = gw_trainer_choose,
                           .gradient_ready = gw_trainer_gradient_ready,
                           .wants_factors = gw_trainer_wants_factors,
                           .factors_ready = gw_trainer_factors_ready,
                           .layer_done = t->pipeline ? NULL : layer_done};
    gw_pipeline_batch batch = {.shard = gw_sampler_shard(&t->sampler, number),
                               /* So that the reducer's mean over replicas is the mean over the window's examples. */
                               .scale = (float)((double)t->replicas / (double)(range->examples * t->rows)),
                               .accumulates = number > range->first,
                               .last = number == range->end - 1,
                               .hooks = &hooks};
    gw_loss loss = {0};
    if (batch.shard.count == 0) {
        /* The reducer owns the gradients until this returns. */
        gw_status status = gw_trainer_wait_parameters(t, 0, t->model->parameters, error);
        if (status == GW_OK && !batch.accumulates) memset(t->gradients, 0, t->model->count * sizeof(float));
        return status;
    }
    gw_status status = (t->pipeline ? gw_pipeline_train : run_shard)(t, &batch, &loss, error);
    t->work.loss_sum += loss.sum;
    t->work.correct += loss.correct;
    t->work.counted += loss.counted;
    if (batch.last && loss.counted) gw_train_tracing_loss(&t->tracing, loss.sum / (double)loss.counted);
    return status;
}

/* ---- the update ---- */

static void advance(gw_trainer *t) {
    t->updates++;
    if (++t->window < gw_trainer_windows(t)) return;
    t->window = 0;
    gw_sampler_epoch(&t->sampler, ++t->epoch);
}

/* Counts since the last call: adds the bytes sent to other stages to `work`, and returns the time waited for them. */
static gw_time count_pipeline(gw_trainer *t) {
    if (!t->pipeline) return 0;
    gw_time waited = t->pipeline->waited;
    t->work.dense += t->pipeline->bytes;
    t->pipeline->waited = t->pipeline->bytes = 0;
    return waited;
}

/* The same for the bytes and waits of the reducer. */
static gw_time count_exchange(gw_trainer *t) {
    gw_reducer_counters now = gw_reducer_read_counters(t->reducer), before = t->counted;
    t->work.bytes += now.bytes_sent - before.bytes_sent;
    t->work.dense += now.dense_bytes - before.dense_bytes;
    t->counted = now;
    return now.wait_ns - before.wait_ns;
}

static gw_status reshard(gw_trainer *t, gw_error *error) {
    if (!t->reshard) return GW_OK;
    t->reshard = false;
    gw_sampler_destroy(&t->sampler);
    gw_status status = make_sampler(t, error);
    if (status == GW_OK) gw_sampler_epoch(&t->sampler, t->epoch);
    return status;
}

gw_status gw_trainer_step(gw_trainer *t, gw_error *error) {
    gw_status status = reshard(t, error);
    if (status != GW_OK) return status;
    window_range range = range_of(t);
    if (!t->reducer) status = gw_trainer_commit(t, error);
    if (status != GW_OK) return status;
    gw_trainer_begin_step(t);
    t->work.waiting += count_pipeline(t) + count_exchange(t); /* that of an evaluation since the last step */
    gw_train_tracing_begin(&t->tracing, t->comm, t->model, t->updates);
    gw_time begun = gw_clock_now();
    for (int64_t b = range.first; b < range.end && status == GW_OK; b++) status = run_batch(t, b, &range, error);
    if (status == GW_OK) status = gw_trainer_submit_rest(t, error);
    if (status == GW_OK) status = gw_trainer_finish_step(t, error);
    if (status != GW_OK) {
        gw_train_tracing_drop(&t->tracing);
        return status;
    }
    gw_train_tracing_end(&t->tracing, t->comm, t->reducer);
    gw_layer_times_step(&t->layers);
    gw_time waited = count_pipeline(t) + count_exchange(t);
    gw_trainer_warn_gradient(t, &t->counted);
    t->work.waiting += waited;
    t->work.compute += gw_clock_now() - begun - waited;
    advance(t);
    return GW_OK;
}
