/* bench_train.c - milliseconds of one training step on one thread: forward, loss, backward and sgd with momentum. Both
 * times of the clock and of the CPU, which other processes disturb less.
 * bench_train [MODEL BATCH [STEPS]]; without arguments cnn with 64 and resnet20 with 32. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "base/rng.h"
#include "nn/loss.h"
#include "nn/model_text.h"
#include "nn/pass.h"
#include "optim/optimiser.h"

#include "figures.h"

#define STEPS_MAX 10000

static void check(gw_status status, const gw_error *error) {
    if (status == GW_OK) return;
    fprintf(stderr, "bench_train: %s\n", error->text);
    exit(1);
}

typedef struct job {
    gw_spec *spec;
    gw_model *model;
    gw_pass *pass;
    gw_optimiser *optimiser;
    int32_t *labels;
    size_t rows;
    int classes;
} job;

static void fill(job *j, int batch) {
    gw_rng rng = gw_rng_make(1, 1);
    size_t inputs = (size_t)batch * gw_shape_count(j->spec->input);
    for (size_t i = 0; i < inputs; i++)
        if (j->spec->vocabulary)
            ((int32_t *)gw_pass_input(j->pass))[i] = (int32_t)gw_rng_below(&rng, (uint64_t)j->spec->vocabulary);
        else gw_pass_input(j->pass)[i] = (float)gw_rng_unit(&rng);
    for (size_t i = 0; i < j->rows; i++) j->labels[i] = (int32_t)gw_rng_below(&rng, (uint64_t)j->classes);
}

static void open_job(job *j, const char *name, int batch) {
    gw_error error = {0};
    check(gw_model_spec(name, NULL, &j->spec, &error), &error);
    check(gw_model_create(j->spec, &(gw_model_options){.seed = 1}, &j->model, &error), &error);
    check(gw_pass_create(j->model, &(gw_pass_options){.batch = batch, .trains = true}, &j->pass, &error), &error);
    check(gw_optimiser_create(&gw_sgd, &gw_sgd.defaults, j->model->table, j->model->parameters, &j->optimiser, &error),
          &error);
    gw_shape out = gw_model_output(j->model);
    j->rows = (size_t)batch * (size_t)gw_shape_positions(out);
    j->classes = out.channels;
    j->labels = malloc(j->rows * sizeof *j->labels);
    if (!j->labels) exit(1);
    fill(j, batch);
}

static void close_job(job *j) {
    free(j->labels);
    gw_optimiser_destroy(j->optimiser);
    gw_pass_destroy(j->pass);
    gw_model_destroy(j->model);
    gw_spec_destroy(j->spec);
}

static double step(job *j, uint64_t number) {
    gw_error error = {0};
    check(gw_pass_forward(j->pass, true, NULL, &error), &error);
    gw_loss loss = gw_loss_cross_entropy(gw_pass_output(j->pass), j->labels, (int64_t)j->rows, j->classes,
                                         1.0f / (float)j->rows, gw_pass_output_gradient(j->pass));
    check(gw_pass_backward(j->pass, false, NULL, &error), &error);
    gw_optimiser_step(j->optimiser, j->model->weights, j->model->gradients, 0, j->model->parameters,
                      &(gw_update){.step = number, .rate = 0.01, .scale = 1});
    return loss.sum / (double)loss.counted;
}

static void measure(const char *name, int batch, int steps) {
    static double times[STEPS_MAX], cpu[STEPS_MAX];
    job j = {0};
    open_job(&j, name, batch);
    double first = step(&j, 1), last = first; /* not timed: kernels are made at the first use */
    for (int i = 0; i < steps; i++) {
        gw_time begin = gw_clock_now();
        double cpu_begin = cpu_ms();
        last = step(&j, (uint64_t)i + 2);
        times[i] = (double)(gw_clock_now() - begin) * 1e-6;
        cpu[i] = cpu_ms() - cpu_begin;
    }
    qsort(times, (size_t)steps, sizeof times[0], by_size);
    qsort(cpu, (size_t)steps, sizeof cpu[0], by_size);
    double flops = 0;
    for (int i = 0; i < j.spec->node_count; i++) flops += 3.0 * (double)j.spec->nodes[i].flops * batch;
    printf("gradwire %-9s batch %3d  median %8.2f ms  best %8.2f ms  cpu %8.2f ms  %6.1f Gflop/s  loss %.3f -> %.3f\n",
           name, batch, times[steps / 2], times[0], cpu[0], flops / cpu[0] * 1e-6, first, last);
    fflush(stdout);
    close_job(&j);
}

int main(int argc, char **argv) {
    int steps = argc > 3 ? atoi(argv[3]) : 20;
    if (steps < 1 || steps > STEPS_MAX) steps = 20;
    if (argc > 2) {
        measure(argv[1], atoi(argv[2]), steps);
        return 0;
    }
    measure("cnn", 64, steps);
    measure("resnet20", 32, steps);
    return 0;
}
