/* synthetic.c - generated images that a model can learn: each class has one picture, and an example is this picture
 * plus noise. The seed determines everything; an example does not depend on the number of examples. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "base/suggest.h"
#include "base/units.h"
#include "data/images.h"

#define BYTES_MAX ((uint64_t)4 << 30)
#define PICTURE_STREAM 1 /* random numbers of the class pictures */
#define EXAMPLE_STREAM 2 /* + split */

typedef struct image_recipe {
    int64_t count, height, width, channels, classes, seed;
} image_recipe;

typedef struct setting {
    const char *name;
    int64_t *value;
    int64_t lowest, highest;
} setting;

static gw_status set(const setting *settings, const char *word, gw_error *error) {
    char quoted[GW_QUOTE_BYTES], hint[GW_HINT_BYTES];
    const char *names[8] = {NULL};
    size_t length = strcspn(word, "=");
    for (int i = 0; settings[i].name; i++) {
        const setting *one = &settings[i];
        names[i] = one->name;
        if (strlen(one->name) != length || strncmp(one->name, word, length) != 0) continue;
        if (word[length] == '=' && gw_integer_parse(word + length + 1, one->lowest, one->highest, one->value))
            return GW_OK;
        return gw_fail(error, GW_INVALID, "synthetic: %s is not a whole number from %lld to %lld",
                       gw_suggest_quote(word, quoted), (long long)one->lowest, (long long)one->highest);
    }
    return gw_fail(error, GW_INVALID, "synthetic: unknown setting %s (%s)", gw_suggest_quote(word, quoted),
                   gw_suggest_hint(word, names, hint));
}

static gw_status parse(const char *spec, image_recipe *recipe, gw_error *error) {
    const setting settings[] = {
        {"count", &recipe->count, 1, UINT32_MAX},
        {"height", &recipe->height, 1, 4096},
        {"width", &recipe->width, 1, 4096},
        {"channels", &recipe->channels, 1, GW_CHANNELS_MAX},
        {"classes", &recipe->classes, 1, 256},
        {"seed", &recipe->seed, 0, INT64_MAX},
        {NULL, NULL, 0, 0},
    };
    if (*spec == '\0') return GW_OK;
    char *words = strdup(spec + 1), *rest = words; /* + 1: the colon */
    if (!words) return gw_fail(error, GW_MEMORY, "no memory for the data set synthetic%s", spec);
    gw_status status = GW_OK;
    for (char *word; status == GW_OK && (word = strsep(&rest, ",")) != NULL;) status = set(settings, word, error);
    free(words);
    return status;
}

static void random_bytes(uint64_t key, uint64_t index, uint8_t *bytes, size_t size) {
    uint32_t drawn[4];
    for (size_t i = 0; i < size; i += sizeof drawn) {
        gw_philox(key, index, i / sizeof drawn, drawn);
        memcpy(bytes + i, drawn, size - i < sizeof drawn ? size - i : sizeof drawn);
    }
}

/* pixels has noise; the result is 3/4 noise and 1/4 picture. */
static void blend(uint8_t *pixels, const uint8_t *picture, size_t size) {
    for (size_t i = 0; i < size; i++) pixels[i] = (uint8_t)((pixels[i] * 3 + picture[i]) / 4);
}

static void fill(const image_recipe *recipe, gw_split split, const uint8_t *pictures, gw_images *images) {
    size_t size = (size_t)(recipe->height * recipe->width * recipe->channels);
    uint64_t key = gw_rng_make((uint64_t)recipe->seed, EXAMPLE_STREAM + (uint64_t)split).key;
    for (int64_t i = 0; i < recipe->count; i++) {
        uint8_t *pixels = images->pixel_blob.data + (size_t)i * size;
        int label = (int)(i % recipe->classes);
        images->label_blob.data[i] = (uint8_t)label;
        random_bytes(key, (uint64_t)i, pixels, size);
        blend(pixels, pictures + (size_t)label * size, size);
    }
}

static gw_status make(const image_recipe *recipe, gw_split split, gw_images *images, gw_error *error) {
    size_t size = (size_t)(recipe->height * recipe->width * recipe->channels);
    gw_blob pictures = {0};
    if ((uint64_t)recipe->count * size > BYTES_MAX)
        return gw_fail(error, GW_INVALID,
                       "synthetic: %lld images of %zu bytes are more than 4 GiB; take a smaller count",
                       (long long)recipe->count, size);
    gw_status status = gw_blob_allocate((size_t)recipe->classes * size, &pictures, error);
    if (status == GW_OK) status = gw_blob_allocate((size_t)recipe->count * size, &images->pixel_blob, error);
    if (status == GW_OK) status = gw_blob_allocate((size_t)recipe->count, &images->label_blob, error);
    if (status == GW_OK) {
        uint64_t key = gw_rng_make((uint64_t)recipe->seed, PICTURE_STREAM).key;
        for (int64_t i = 0; i < recipe->classes; i++)
            random_bytes(key, (uint64_t)i, pictures.data + (size_t)i * size, size);
        fill(recipe, split, pictures.data, images);
    }
    gw_blob_free(&pictures);
    return status;
}

gw_status gw_synthetic_load(const char *spec, gw_split split, gw_images *images, gw_error *error) {
    image_recipe recipe = {.count = 4096, .height = 28, .width = 28, .channels = 1, .classes = 10, .seed = 1};
    gw_images made = {0};
    gw_status status = parse(spec, &recipe, error);
    if (status == GW_OK && split == GW_SPLIT_TEST) recipe.count = (recipe.count + 3) / 4;
    if (status == GW_OK) status = make(&recipe, split, &made, error);
    if (status != GW_OK) {
        gw_images_free(&made);
        return status;
    }
    made.pixels = made.pixel_blob.data;
    made.labels = made.label_blob.data;
    made.count = recipe.count;
    made.height = (int)recipe.height;
    made.width = (int)recipe.width;
    made.channels = (int)recipe.channels;
    made.classes = (int)recipe.classes;
    *images = made;
    return GW_OK;
}
