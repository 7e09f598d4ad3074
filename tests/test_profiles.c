/* test_profiles.c - well-known models have the parameters, tensors and operations of the literature. */
#include <math.h>

#include "profile/builtin_profiles.h"
#include "test.h"

typedef struct known {
    const char *name;
    uint64_t parameters;
    int tensors;
    double operations; /* multiply-adds of one forward pass, in 1e9, as published; 0: not */
} known;

static const known models[] = {
    {"resnet50", 25557032, 161, 4.1}, {"densenet201", 20013928, 604, 4.3}, {"inception4", 42679816, 449, 12.3},
    {"vgg16", 138357544, 32, 15.5},   {"bert-base", 110111042, 206, 0},    {"bert-large", 336232258, 398, 0},
    {"gpt2", 124439808, 148, 0},
};

static void tensors_and_parameters_are_exact(void) {
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        gw_profile p;
        gw_error error = {.rank = -1};
        const gw_builtin_profile *builtin = gw_builtin_profile_find(models[i].name);
        CHECK(builtin != NULL);
        if (!builtin || gw_builtin_profile_flops(builtin, &p, &error)) continue;
        CHECK_EQ(models[i].parameters, gw_profile_parameter_bytes(&p) / 4);
        CHECK_EQ(models[i].tensors, gw_profile_tensors(&p));
        double operations = gw_profile_seconds(&p) * 1e6 / 3 / 2 / 1e9;
        if (models[i].operations > 0) CHECK(fabs(operations - models[i].operations) < 0.03 * models[i].operations);
        gw_profile_free(&p);
    }
}

static void times_are_scaled(void) {
    gw_profile p;
    gw_error error = {.rank = -1};
    for (const gw_builtin_profile *b = gw_builtin_profiles; b->name; b++) {
        CHECK_EQ(GW_OK, gw_builtin_profile_make(b, 0, 0, &p, &error));
        CHECK(fabs(gw_profile_seconds(&p) * b->throughput / b->batch - 1) < 1e-9);
        gw_profile_free(&p);
        CHECK_EQ(GW_OK, gw_builtin_profile_make(b, 10, 100, &p, &error));
        CHECK(fabs(gw_profile_seconds(&p) - 0.1) < 1e-9);
        gw_profile_free(&p);
    }
}

/* Models without a measured speed run at the operations per second of the most similar measured one. */
static void unmeasured_models_run_as_fast_as_those_like_them(void) {
    static const char *const like[][2] = {{"densenet201", "resnet50"},
                                          {"inception4", "resnet50"},
                                          {"vgg16", "resnet50"},
                                          {"bert-large", "bert-base"},
                                          {"gpt2", "bert-base"}};
    for (size_t i = 0; i < sizeof like / sizeof like[0]; i++) {
        double rate[2];
        for (int k = 0; k < 2; k++) {
            gw_profile p;
            gw_error error = {.rank = -1};
            const gw_builtin_profile *b = gw_builtin_profile_find(like[i][k]);
            CHECK_EQ(GW_OK, gw_builtin_profile_flops(b, &p, &error));
            rate[k] = gw_profile_seconds(&p) * b->throughput;
            gw_profile_free(&p);
        }
        if (fabs(rate[0] / rate[1] - 1) > 0.01) printf("    %s: off by %.3f\n", like[i][0], rate[0] / rate[1]);
        CHECK(fabs(rate[0] / rate[1] - 1) < 0.01);
    }
}

TEST_MAIN(CASE(tensors_and_parameters_are_exact), CASE(times_are_scaled),
          CASE(unmeasured_models_run_as_fast_as_those_like_them))
