/* dataset.c - opening a data set by name or path. */
#include "data/dataset.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/suggest.h"
#include "data/dataset_internal.h"
#include "data/sources.h"
#include "data/text.h"

#define NAMES_MAX 16
#define SYNTHETIC "synthetic"

/* For data sets with unknown statistics: a rough value for any images, the same for both splits. */
#define COMMON_MEAN 0.5f
#define COMMON_DEVIATION 0.25f

static gw_status finish_images(gw_dataset *dataset, const gw_source *source, const char *path, gw_error *error) {
    gw_images *images = &dataset->images;
    gw_dataset_info *info = &dataset->info;
    int classes = images->classes;
    for (int64_t i = 0; i < images->count; i++)
        if (images->labels[i] >= classes) classes = images->labels[i] + 1;
    int channels = !source ? images->channels : source->mean[2] > 0 ? 3 : 1;
    if (images->channels != channels)
        return gw_fail(error, GW_INVALID, "%s holds images of %d channels; %s has %d: remove it and get it again", path,
                       images->channels, source->name, channels);
    *info = (gw_dataset_info){.kind = GW_DATASET_IMAGES,
                              .count = images->count,
                              .height = images->height,
                              .width = images->width,
                              .channels = channels,
                              .classes = classes};
    for (int c = 0; c < channels; c++) {
        info->mean[c] = source ? source->mean[c] : COMMON_MEAN;
        info->deviation[c] = source ? source->deviation[c] : COMMON_DEVIATION;
        dataset->scale[c] = 1.0f / (255.0f * info->deviation[c]);
        dataset->bias[c] = -info->mean[c] / info->deviation[c];
    }
    return GW_OK;
}

static gw_status finish_text(gw_dataset *dataset, gw_split split, int window, const char *path, gw_error *error) {
    size_t size = dataset->text.size, test = size / 10;
    size_t part = split == GW_SPLIT_TRAIN ? size - test : test;
    if (window < 1) return gw_fail(error, GW_INVALID, "%s is text: the tokens of an example must be 1 or more", path);
    if (part < (size_t)window + 1)
        return gw_fail(error, GW_INVALID, "%s is too short: its %s part has %zu bytes, an example needs %d", path,
                       split == GW_SPLIT_TRAIN ? "training" : "test", part, window + 1);
    size_t count = (part - 1) / (size_t)window;
    if (count > UINT32_MAX) return gw_fail(error, GW_INVALID, "%s is too long for examples of %d tokens", path, window);
    dataset->part = dataset->text.data + (split == GW_SPLIT_TRAIN ? 0 : size - test);
    dataset->info = (gw_dataset_info){
        .kind = GW_DATASET_TEXT, .count = (int64_t)count, .window = window, .classes = GW_TEXT_CLASSES};
    return GW_OK;
}

static gw_status load(const gw_dataset_request *request, const gw_source *source, const char *path, bool is_text,
                      gw_dataset *dataset, gw_error *error) {
    gw_status status;
    if (is_text) {
        status = gw_text_load(path, &dataset->text, error);
        return status == GW_OK ? finish_text(dataset, request->split, request->window, path, error) : status;
    }
    status = gw_images_load(path, request->split, &dataset->images, error);
    return status == GW_OK ? finish_images(dataset, source, path, error) : status;
}

static gw_status open_named(const gw_dataset_request *request, const gw_source *source, gw_dataset *dataset,
                            gw_error *error) {
    char path[PATH_MAX];
    if (!gw_source_locate(source, path))
        return gw_fail(error, GW_INVALID, "the data set %s is not here; fetch it with: gradwire data get %s",
                       source->name, source->name);
    return load(request, source, path, source->kind == GW_DATASET_TEXT, dataset, error);
}

static gw_status unknown(const char *name, gw_error *error) {
    char quoted[GW_QUOTE_BYTES], hint[GW_HINT_BYTES];
    const char *names[NAMES_MAX] = {NULL};
    int count = 0;
    for (const gw_source *source = gw_sources; source->name && count < NAMES_MAX - 2; source++)
        names[count++] = source->name;
    names[count] = SYNTHETIC;
    return gw_fail(error, GW_INVALID, "%s is neither a data set nor a path (%s)", gw_suggest_quote(name, quoted),
                   gw_suggest_hint(name, names, hint));
}

static gw_status open_source(const gw_dataset_request *request, gw_dataset *dataset, gw_error *error) {
    const char *name = request->source;
    const gw_source *source = gw_source_find(name);
    struct stat about;
    if (source) return open_named(request, source, dataset, error);
    size_t length = strlen(SYNTHETIC);
    if (strncmp(name, SYNTHETIC, length) == 0 && (name[length] == ':' || name[length] == '\0')) {
        gw_status status = gw_synthetic_load(name + length, request->split, &dataset->images, error);
        return status == GW_OK ? finish_images(dataset, NULL, SYNTHETIC, error) : status;
    }
    if (stat(name, &about) != 0) return unknown(name, error);
    return load(request, NULL, name, !S_ISDIR(about.st_mode), dataset, error);
}

gw_status gw_dataset_open(const gw_dataset_request *request, gw_dataset **dataset, gw_error *error) {
    gw_dataset *opened = calloc(1, sizeof *opened);
    if (!opened) return gw_fail(error, GW_MEMORY, "no memory for the data set %s", request->source);
    gw_status status = open_source(request, opened, error);
    if (status == GW_OK) *dataset = opened;
    else gw_dataset_close(opened);
    return status;
}

void gw_dataset_close(gw_dataset *dataset) {
    if (!dataset) return;
    gw_images_free(&dataset->images);
    gw_blob_free(&dataset->text);
    free(dataset);
}

const gw_dataset_info *gw_dataset_describe(const gw_dataset *dataset) { return &dataset->info; }
