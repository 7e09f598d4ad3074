/* test_data_real.c - known facts of the real data sets; a set that is not installed is skipped with a message. */
#include <math.h>

#include "data/dataset.h"
#include "data/images.h"
#include "data/sources.h"
#include "data/text.h"
#include "test.h"

typedef struct known_fact {
    const char *name;
    int64_t train, test;
    int first_train, first_test; /* labels */
    int of_class_0, of_class_1;  /* examples of the training split */
} known_fact;

static bool missing(const char *name) {
    char path[PATH_MAX];
    if (gw_source_locate(gw_source_find(name), path)) return false;
    printf("    skipped: %s is not here (gradwire data get %s)\n", name, name);
    return true;
}

/* With the catalogue's mean and deviation each channel must come out as 0 and 1. */
static void check_scale(const gw_dataset *dataset) {
    const gw_dataset_info *info = gw_dataset_describe(dataset);
    size_t size = (size_t)(info->height * info->width * info->channels);
    float *images = malloc(1000 * size * sizeof *images);
    int kinds[1000];
    double sum[3] = {0}, squares[3] = {0}, pixels = (double)info->count * info->height * info->width;
    for (int64_t first = 0; first < info->count; first += 1000) {
        gw_dataset_batch(dataset, NULL, NULL, first, 1000, images, kinds);
        for (size_t i = 0; i < 1000 * size; i++) {
            sum[i % (size_t)info->channels] += (double)images[i];
            squares[i % (size_t)info->channels] += (double)images[i] * (double)images[i];
        }
    }
    for (int c = 0; c < info->channels; c++) {
        CHECK(fabs(sum[c] / pixels) < 1e-3);
        CHECK(fabs(squares[c] / pixels - 1) < 2e-3);
    }
    free(images);
}

static void check_fact(const known_fact *fact) {
    gw_dataset_request train_request = {.source = fact->name, .split = GW_SPLIT_TRAIN};
    gw_dataset_request test_request = {.source = fact->name, .split = GW_SPLIT_TEST};
    gw_dataset *train, *test;
    gw_images images = {0};
    gw_error error = {.status = GW_OK};
    char path[PATH_MAX];
    int of_class[256] = {0};
    if (missing(fact->name)) return;
    CHECK_EQ(GW_OK, gw_dataset_open(&train_request, &train, &error));
    CHECK_EQ(GW_OK, gw_dataset_open(&test_request, &test, &error));
    CHECK_STR("", error.text);
    if (error.status != GW_OK) return;
    CHECK_EQ(fact->train, gw_dataset_describe(train)->count);
    CHECK_EQ(fact->test, gw_dataset_describe(test)->count);
    CHECK_EQ(10, gw_dataset_describe(train)->classes);
    check_scale(train);
    gw_source_locate(gw_source_find(fact->name), path);
    CHECK_EQ(GW_OK, gw_images_load(path, GW_SPLIT_TEST, &images, &error));
    CHECK_EQ(fact->first_test, images.labels[0]);
    gw_images_free(&images);
    CHECK_EQ(GW_OK, gw_images_load(path, GW_SPLIT_TRAIN, &images, &error));
    CHECK_EQ(fact->first_train, images.labels[0]);
    for (int64_t i = 0; i < images.count; i++) of_class[images.labels[i]]++;
    CHECK_EQ(fact->of_class_0, of_class[0]);
    CHECK_EQ(fact->of_class_1, of_class[1]);
    gw_images_free(&images);
    gw_dataset_close(test);
    gw_dataset_close(train);
}

static void real_images(void) {
    static const known_fact facts[] = {
        {"fashion-mnist", 60000, 10000, 9, 9, 6000, 6000},
        {"mnist", 60000, 10000, 5, 7, 5923, 6742},
        {"cifar10", 50000, 10000, 6, 3, 5000, 5000},
    };
    for (size_t i = 0; i < sizeof facts / sizeof facts[0]; i++) check_fact(&facts[i]);
}

static void real_texts(void) {
    char path[PATH_MAX];
    gw_blob text;
    if (!missing("bible") && gw_source_locate(gw_source_find("bible"), path)) {
        const char *begins = "Holy Bible, Authorized (King James) Version.", *ends = "be with you all. Amen.\n";
        CHECK_EQ(GW_OK, gw_text_load(path, &text, NULL));
        CHECK_EQ(4404475, text.size);
        CHECK(memcmp(text.data, begins, strlen(begins)) == 0);
        CHECK(memcmp(text.data + text.size - strlen(ends), ends, strlen(ends)) == 0);
        gw_blob_free(&text);
    }
    if (!missing("sotu") && gw_source_locate(gw_source_find("sotu"), path)) {
        CHECK_EQ(GW_OK, gw_text_load(path, &text, NULL));
        CHECK(text.size > 10000000 && memcmp(text.data, "Fellow-Citizens of the Senate", 29) == 0);
        gw_blob_free(&text);
    }
}

TEST_MAIN(CASE(real_images), CASE(real_texts))
