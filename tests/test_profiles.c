/* test_profiles.c - well-known models have the parameters, tensors and operations of the literature. */
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "profile/builtin_profiles.h"
#include "profile/profile_load.h"
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
        const gw_zoo_model *model = gw_zoo_find(models[i].name);
        CHECK(model != NULL);
        if (!model || gw_builtin_profile_flops(model, &p, &error)) continue;
        CHECK_EQ(models[i].parameters, model->parameters);
        CHECK_EQ(models[i].tensors, model->tensors);
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
    for (const gw_zoo_model *b = gw_zoo; b->name; b++) {
        if (!b->batch) continue;
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
            const gw_zoo_model *b = gw_zoo_find(like[i][k]);
            CHECK_EQ(GW_OK, gw_builtin_profile_flops(b, &p, &error));
            rate[k] = gw_profile_seconds(&p) * b->throughput;
            gw_profile_free(&p);
        }
        if (fabs(rate[0] / rate[1] - 1) > 0.01) printf("    %s: off by %.3f\n", like[i][0], rate[0] / rate[1]);
        CHECK(fabs(rate[0] / rate[1] - 1) < 0.01);
    }
}

/* Every model of the table can be used: trained, or predicted; no name is there twice. */
static void the_zoo_has_no_idle_rows(void) {
    for (const gw_zoo_model *m = gw_zoo; m->name; m++) {
        CHECK(m->trains || m->batch > 0);
        CHECK_EQ(m->batch > 0, m->throughput > 0);
        CHECK(gw_zoo_find(m->name) == m);
    }
}

static void refuse(const char *name, const char *sentence) {
    gw_profile p;
    gw_error error = {.rank = -1};
    CHECK_EQ(GW_INVALID, gw_profile_load(name, &p, &error));
    CHECK_STR(sentence, error.text);
}

static void write_text(const char *path, const char *text) {
    FILE *file = fopen(path, "w");
    CHECK(file && fputs(text, file) >= 0 && fclose(file) == 0);
}

static void a_model_is_a_name_or_a_file(void) {
    char path[] = "/tmp/gw_profiles_XXXXXX", sentence[300];
    gw_profile p;
    gw_error error = {.rank = -1};
    int fd = mkstemp(path);
    CHECK(fd >= 0 && close(fd) == 0);
    CHECK_EQ(GW_OK, gw_profile_load("vgg16", &p, &error));
    CHECK_EQ(32, gw_profile_tensors(&p));
    gw_profile_free(&p);
    refuse("cnn", "cnn has no built-in layer times: record them with gradwire profile cnn -o FILE, and give that file");
    write_text(path, "# mine\n\n  input 28 28 1\nflatten\n");
    snprintf(
        sentence, sizeof sentence,
        "%s describes a model without layer times: record them with gradwire profile %s -o FILE, and give that file",
        path, path);
    refuse(path, sentence);
    write_text(path, "# written by gradwire fit\ngradwire-machines 1\nend\n");
    snprintf(sentence, sizeof sentence,
             "%s has the speeds of machines, not the layers of a model: gradwire predict takes it with --machines",
             path);
    refuse(path, sentence);
    write_text(path, "layer,kind,parameter_bytes,forward_us,backward_us\n0,conv,4096,500,500\n");
    CHECK_EQ(GW_OK, gw_profile_load(path, &p, &error));
    CHECK_EQ(1, p.count);
    gw_profile_free(&p);
    unlink(path);
}

TEST_MAIN(CASE(tensors_and_parameters_are_exact), CASE(times_are_scaled),
          CASE(unmeasured_models_run_as_fast_as_those_like_them), CASE(the_zoo_has_no_idle_rows),
          CASE(a_model_is_a_name_or_a_file))
