/* train_test.h - for tests of the trainer: a model from a text, random numbers, differences. */
#ifndef GW_TRAIN_TEST_H
#define GW_TRAIN_TEST_H

#include <math.h>

#include "base/rng.h"
#include "nn/pass.h"
#include "test.h"

typedef struct bench {
    gw_spec *spec;
    gw_model *model;
    gw_pass *pass;
    size_t inputs, outputs; /* floats of a batch */
} bench;

static inline float uniform(gw_rng *rng, float low, float high) { return low + (high - low) * (float)gw_rng_unit(rng); }

/* Checks that everything can be created; false: the test cannot continue. */
static inline int bench_open(bench *b, const char *text, int batch) {
    gw_error error = {0};
    *b = (bench){0};
    if (gw_spec_parse(text, "test", &b->spec, &error) != GW_OK ||
        gw_model_create(b->spec, &(gw_model_options){.seed = 7}, &b->model, &error) != GW_OK ||
        gw_pass_create(b->model,
                       &(gw_pass_options){.batch = batch, .trains = true, .input_gradient = b->spec->vocabulary == 0},
                       &b->pass, &error) != GW_OK) {
        printf("    %s\n", error.text);
        CHECK(!"the model can be made");
        return 0;
    }
    b->inputs = (size_t)batch * gw_shape_count(gw_model_input(b->model));
    b->outputs = (size_t)batch * gw_shape_count(gw_model_output(b->model));
    return 1;
}

static inline void bench_close(bench *b) {
    gw_pass_destroy(b->pass);
    gw_model_destroy(b->model);
    gw_spec_destroy(b->spec);
}

#endif
