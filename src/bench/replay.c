/* replay.c - see replay.h. */
#include "bench/replay.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

#include "gradwire/trace.h"

#define BLOCKED (20 * GW_MILLISECOND / 1000) /* a longer call has blocked, and compute resumes late */
#define RATE 1.0f                            /* learning rate, if the synchronization runs the update */
enum { TRIALS = 5, TRIALS_MAX = 30 };

typedef struct replay_layer {
    int tensor;                     /* -1: the layer has no parameters */
    double forward_us, backward_us; /* as recorded */
} replay_layer;

struct gw_replay {
    gw_comm *comm;
    replay_layer *layers;
    int layer_count;
    gw_reducer_tensor *tensors;
    char (*names)[GW_PROFILE_NAME_BYTES + 16];
    int tensor_count;
    float *gradients; /* of all tensors, contiguous; from gw_alloc */
    float *weights;
    size_t count; /* floats */
    double scale;
    bool fresh;          /* this step writes new gradients */
    int number;          /* of the checked step: each has other values */
    uint64_t recorded;   /* steps so far that a recording has */
    float *left, *right; /* factors of the layer that has the longest ones: one example, the others are 0 */
};

/* Memory. */

static size_t shrunk(uint64_t bytes, double shrink) {
    size_t count = (size_t)((double)bytes / sizeof(float) / shrink);
    return bytes && !count ? 1 : count;
}

/* Fully connected layers may send factors (arch=sfb). */
static void add_matrix(gw_reducer_tensor *t, const gw_profile_layer *from, int batch) {
    t->rows = (size_t)from->rows;
    t->batch = from->rows && strcmp(from->kind, "Linear") == 0 ? (size_t)batch : 0;
}

static gw_status take_factors(gw_replay *r, gw_error *error) {
    size_t left = 1, right = 1;
    for (int t = 0; t < r->tensor_count; t++) {
        const gw_reducer_tensor *of = &r->tensors[t];
        if (!of->batch) continue;
        if (of->batch * of->rows > left) left = of->batch * of->rows;
        if (of->batch * of->count / of->rows > right) right = of->batch * of->count / of->rows;
    }
    r->left = calloc(left, sizeof *r->left);
    r->right = calloc(right, sizeof *r->right);
    return r->left && r->right ? GW_OK : gw_fail(error, GW_MEMORY, "out of memory for factors");
}

static gw_status lay_out(gw_replay *r, const gw_profile *profile, double shrink, gw_error *error) {
    r->layers = calloc((size_t)profile->count, sizeof *r->layers);
    r->tensors = calloc((size_t)profile->count, sizeof *r->tensors);
    r->names = calloc((size_t)profile->count, sizeof *r->names);
    if (!r->layers || !r->tensors || !r->names)
        return gw_fail(error, GW_MEMORY, "out of memory for %d layers", profile->count);
    r->layer_count = profile->count;
    for (int i = 0; i < profile->count; i++) {
        const gw_profile_layer *from = &profile->layers[i];
        r->layers[i] = (replay_layer){.tensor = -1, .forward_us = from->forward_us, .backward_us = from->backward_us};
        if (!from->parameter_bytes) continue;
        r->layers[i].tensor = r->tensor_count;
        snprintf(r->names[r->tensor_count], sizeof *r->names, "%d.%s", i, from->name);
        r->tensors[r->tensor_count] = (gw_reducer_tensor){.name = r->names[r->tensor_count], .dtype = GW_F32,
                                                       .count = shrunk(from->parameter_bytes, shrink)};
        if (shrink == 1) add_matrix(&r->tensors[r->tensor_count], from, profile->batch);
        r->count += r->tensors[r->tensor_count++].count;
    }
    return GW_OK;
}

gw_status gw_replay_open(gw_replay **out, gw_comm *comm, const gw_profile *profile, double shrink, gw_error *error) {
    gw_replay *r = calloc(1, sizeof *r);
    if (!r) return gw_fail(error, GW_MEMORY, "out of memory for a replay");
    *r = (gw_replay){.comm = comm, .scale = 1};
    gw_status status = lay_out(r, profile, shrink, error);
    if (!status) status = take_factors(r, error);
    if (!status && !(r->gradients = gw_alloc(comm, (r->count + 1) * sizeof(float))))
        status = gw_fail(error, GW_MEMORY, "%s", gw_last_error(NULL));
    if (!status && !(r->weights = calloc(r->count + 1, sizeof(float))))
        status = gw_fail(error, GW_MEMORY, "out of memory for %zu weights", r->count);
    size_t at = 0;
    for (int t = 0; !status && t < r->tensor_count; t++) {
        r->tensors[t].gradient = r->gradients + at;
        r->tensors[t].weights = r->weights + at;
        at += r->tensors[t].count;
    }
    prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0); /* the default of 50 us would add up over hundreds of sleeps */
    if (status) gw_replay_close(r);
    else *out = r;
    return status;
}

void gw_replay_close(gw_replay *r) {
    if (!r) return;
    free(r->left);
    free(r->right);
    free(r->weights);
    gw_free(r->comm, r->gradients);
    free(r->names);
    free(r->tensors);
    free(r->layers);
    free(r);
}

uint64_t gw_replay_bytes(const gw_replay *r) { return r->count * sizeof(float); }
void gw_replay_scale(gw_replay *r, double scale) { r->scale = scale; }

/* Bounds. */

double gw_replay_compute_us(const gw_replay *r) {
    double us = 0;
    for (int i = 0; i < r->layer_count; i++) us += r->layers[i].forward_us + r->layers[i].backward_us;
    return us * r->scale;
}

double gw_replay_bound_us(const gw_replay *r, double communication_us) {
    double compute = gw_replay_compute_us(r), before = 0, sent = 0;
    double bound = compute > communication_us ? compute : communication_us;
    for (int i = 0; i < r->layer_count; i++) {
        const replay_layer *layer = &r->layers[i];
        if (layer->tensor >= 0) sent += communication_us * (double)r->tensors[layer->tensor].count / (double)r->count;
        if (compute - before + sent > bound && layer->tensor >= 0) bound = compute - before + sent;
        before += (layer->forward_us + layer->backward_us) * r->scale;
    }
    return bound;
}

/* Copies the last error of the library. */
static gw_status checked(gw_replay *r, gw_status status, gw_error *error) {
    return status ? gw_fail(error, status, "%s", gw_last_error(r->comm)) : GW_OK;
}

static gw_status time_exchange(gw_replay *r, double *us) {
    gw_status status = gw_barrier(r->comm);
    gw_time begun = gw_clock_now();
    if (!status) status = gw_allreduce(r->comm, r->gradients, r->gradients, r->count, GW_F32, GW_AVG);
    *us = (double)(gw_clock_now() - begun) / 1e3;
    return status ? status : gw_allreduce(r->comm, us, us, 1, GW_F64, GW_MAX);
}

/* The first all-reduce sets up connections, which reach their full speed in the next few. */
gw_status gw_replay_communication_us(gw_replay *r, double *us, gw_error *error) {
    int since = 0; /* trials since the last that was at least 1 % faster than all before */
    *us = INFINITY;
    memset(r->gradients, 0, gw_replay_bytes(r));
    for (int i = 0; i < TRIALS_MAX && since < TRIALS; i++) {
        double took;
        gw_status status = time_exchange(r, &took);
        if (status) return checked(r, status, error);
        since = took < *us * 0.99 ? 0 : since + 1;
        if (took < *us) *us = took;
    }
    return GW_OK;
}

/* A step. */

static void update(void *ctx, const gw_reducer_update *u) {
    (void)ctx;
    float *weights = u->weights;
    const float *gradient = u->gradient;
    for (size_t i = 0; i < u->count; i++) weights[i] -= RATE * (float)(u->rate_scale * u->scale) * gradient[i];
}

gw_status gw_replay_commit(gw_replay *r, const char *strategy, gw_replay_strategy *replayed, gw_error *error) {
    gw_reducer_options options = GW_REDUCER_OPTIONS_DEFAULT;
    options.strategy = strategy;
    options.tune = replayed->tuned ? "on" : "off";
    if (replayed->updates) options.update = update;
    return checked(r, gw_reducer_commit(&replayed->reducer, r->comm, r->tensors, r->tensor_count, &options), error);
}

/* Small whole numbers, whose sums are exact in any order. */
static float value_of(int rank, size_t element, int number) {
    return (float)((rank + 1) * (int)(element % 11) + number % 5);
}

/* Where factors are sent every row of the gradient is the same. */
static size_t pattern_length(const gw_replay *r, const gw_reducer *reducer, int t) {
    const gw_reducer_tensor *of = &r->tensors[t];
    return gw_reducer_wants_factors(reducer, t) ? of->count / of->rows : of->count;
}

static void fill(const gw_replay *r, const gw_reducer *reducer, int t) {
    const gw_reducer_tensor *of = &r->tensors[t];
    bool factors = gw_reducer_wants_factors(reducer, t);
    float *values = factors ? r->right : of->gradient;
    int rank = gw_rank(r->comm);
    for (size_t i = 0; i < pattern_length(r, reducer, t); i++) values[i] = value_of(rank, i, r->number);
    for (size_t i = 0; factors && i < of->batch * of->rows; i++) r->left[i] = i < of->rows;
}

static gw_status ready(const gw_replay *r, gw_reducer *reducer, int t) {
    if (!gw_reducer_wants_factors(reducer, t)) return gw_reducer_ready(reducer, t);
    return gw_reducer_ready_factors(reducer, t, r->left, r->right, r->tensors[t].batch);
}

static void sleep_until(gw_time at) {
    struct timespec when = {.tv_sec = (time_t)(at / GW_SECOND), .tv_nsec = (long)(at % GW_SECOND)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &when, NULL) != 0) {}
}

/* Makes a call of the step at time *at_us. The next compute starts at that time, so a late wake-up of this thread does
 * not lengthen the layer. If the call blocked, compute starts when the call returns. */
static gw_status call_at(gw_replay *r, gw_reducer *reducer, int tensor, bool waits, double *at_us) {
    gw_time at = (gw_time)(*at_us * 1e3), begun, ended;
    sleep_until(at);
    if (!waits && r->fresh) fill(r, reducer, tensor);
    begun = gw_clock_now();
    gw_status status = waits ? gw_reducer_wait(reducer, tensor) : ready(r, reducer, tensor);
    ended = gw_clock_now();
    if (ended - begun > BLOCKED) *at_us = (double)ended / 1e3;
    return status;
}

/* A layer that computes from that time on; moves the time to its end. */
static void compute(const gw_replay *r, int layer, bool backward, bool records, double *at_us) {
    const replay_layer *l = &r->layers[layer];
    double begin = *at_us;
    char name[GW_PROFILE_NAME_BYTES];
    *at_us += (backward ? l->backward_us : l->forward_us) * r->scale;
    if (!records || !gw_trace_runs(r->comm)) return;
    snprintf(name, sizeof name, "layer%d", layer);
    gw_trace_layer(r->comm, l->tensor >= 0 ? r->names[l->tensor] : name, backward, r->recorded, (uint64_t)(begin * 1e3),
                   (uint64_t)(*at_us * 1e3));
}

static gw_status run_step(gw_replay *r, gw_reducer *reducer, bool records, gw_error *error) {
    double at = (double)gw_clock_now() / 1e3;
    gw_status status = GW_OK;
    for (int i = 0; i < r->layer_count && !status; i++) {
        if (r->layers[i].tensor >= 0) status = call_at(r, reducer, r->layers[i].tensor, true, &at);
        compute(r, i, false, records, &at);
    }
    for (int i = r->layer_count - 1; i >= 0 && !status; i--) {
        compute(r, i, true, records, &at);
        if (r->layers[i].tensor >= 0) status = call_at(r, reducer, r->layers[i].tensor, false, &at);
    }
    sleep_until((gw_time)(at * 1e3));
    if (!status) status = gw_reducer_end(reducer);
    return checked(r, status, error);
}

/* Strategies take turns: their steps have numbers of the replay. */
static void record_step(gw_replay *r, const gw_reducer *reducer) {
    char line[512];
    if (!gw_trace_runs(r->comm)) return;
    gw_reducer_strategy(reducer, line, sizeof line);
    gw_trace_step_end(r->comm, r->recorded++, line);
}

gw_status gw_replay_run(gw_replay *r, const gw_replay_strategy *replayed, int steps, gw_time *ended, gw_error *error) {
    gw_status status = GW_OK;
    gw_trace_step_begin(r->comm);
    for (int i = 0; i < steps && !status; i++) {
        status = run_step(r, replayed->reducer, true, error);
        if (ended) ended[i] = gw_clock_now();
        if (!status) record_step(r, replayed->reducer);
    }
    return status;
}

static uint64_t count_wrong(const gw_replay *r, const gw_reducer *reducer, bool updates) {
    uint64_t wrong = 0;
    int world = gw_size(r->comm);
    for (int t = 0; t < r->tensor_count; t++) {
        const float *gradient = r->tensors[t].gradient, *weights = r->tensors[t].weights;
        size_t length = pattern_length(r, reducer, t);
        for (size_t i = 0; i < r->tensors[t].count; i++) {
            double sum = 0, found = updates ? -weights[i] : gradient[i];
            for (int q = 0; q < world; q++) sum += value_of(q, i % length, r->number);
            wrong += fabs(found - sum / world) > 1e-4;
        }
    }
    return wrong;
}

gw_status gw_replay_check(gw_replay *r, const gw_replay_strategy *replayed, uint64_t *wrong, gw_error *error) {
    gw_reducer *reducer = replayed->reducer;
    gw_status status = checked(r, gw_reducer_flush(reducer), error);
    memset(r->weights, 0, gw_replay_bytes(r));
    r->fresh = true;
    r->number++;
    if (!status) status = run_step(r, reducer, false, error);
    if (!status) status = checked(r, gw_reducer_flush(reducer), error);
    r->fresh = false;
    if (!status) *wrong += count_wrong(r, reducer, replayed->updates);
    return status;
}
