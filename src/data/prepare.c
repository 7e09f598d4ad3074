/* prepare.c - converts raw data sets to the uncompressed files of the cache. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "data/images.h"
#include "data/sources.h"
#include "data/text.h"

static bool write_all(int file, const uint8_t *bytes, size_t size) {
    while (size > 0) {
        ssize_t written = write(file, bytes, size);
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) return false;
        bytes += written;
        size -= (size_t)written;
    }
    return true;
}

/* Writes header and data to a file, and syncs it to disk. */
static gw_status write_file(const char *path, const uint8_t *header, size_t header_size, const uint8_t *data,
                            size_t size, gw_error *error) {
    int file = gw_file_create(path, 0644);
    if (file < 0) return gw_fail(error, GW_SYSTEM, "%s cannot be written: %s", path, strerror(errno));
    bool good = write_all(file, header, header_size) && write_all(file, data, size) && fsync(file) == 0;
    int cause = errno;
    if (close(file) != 0 && good) {
        good = false;
        cause = errno;
    }
    return good ? GW_OK : gw_fail(error, GW_SYSTEM, "%s cannot be written: %s", path, strerror(cause));
}

static gw_status write_idx(const char *path, int dims, const uint32_t *dim, const uint8_t *data, gw_error *error) {
    uint8_t header[4 + 4 * GW_IDX_DIMS_MAX] = {0, 0, 8, (uint8_t)dims};
    size_t size = 1;
    for (int i = 0; i < dims; i++) {
        for (int byte = 0; byte < 4; byte++) header[4 + 4 * i + byte] = (uint8_t)(dim[i] >> (24 - 8 * byte));
        size *= dim[i];
    }
    return write_file(path, header, 4 + 4 * (size_t)dims, data, size, error);
}

static gw_status path_in(const char *directory, const char *name, char path[PATH_MAX], gw_error *error) {
    if (snprintf(path, PATH_MAX, "%s/%s", directory, name) < PATH_MAX) return GW_OK;
    return gw_fail(error, GW_INVALID, "a path in %.200s is too long", directory);
}

static gw_status write_images(const gw_images *images, gw_split split, const char *directory, gw_error *error) {
    static const char *const names[][2] = {{"train-images-idx3-ubyte", "train-images-idx4-ubyte"},
                                           {"t10k-images-idx3-ubyte", "t10k-images-idx4-ubyte"}};
    char path[PATH_MAX];
    bool colours = images->channels > 1;
    uint32_t dim[] = {(uint32_t)images->count, (uint32_t)images->height, (uint32_t)images->width,
                      (uint32_t)images->channels};
    gw_status status = path_in(directory, names[split][colours], path, error);
    if (status == GW_OK) status = write_idx(path, colours ? 4 : 3, dim, images->pixels, error);
    if (status == GW_OK)
        status = path_in(directory, split == GW_SPLIT_TRAIN ? "train-labels-idx1-ubyte" : "t10k-labels-idx1-ubyte",
                         path, error);
    if (status == GW_OK) status = write_idx(path, 1, dim, images->labels, error);
    return status;
}

static gw_status prepare_images(const char *path, gw_split split, const char *directory, gw_error *error) {
    gw_images images;
    gw_status status = gw_images_load(path, split, &images, error);
    if (status != GW_OK) return status;
    status = write_images(&images, split, directory, error);
    gw_images_free(&images);
    return status;
}

static gw_status prepare_text(const char *path, const char *directory, gw_error *error) {
    char target[PATH_MAX];
    gw_blob text;
    gw_status status = path_in(directory, "text", target, error);
    if (status == GW_OK) status = gw_text_load(path, &text, error);
    if (status != GW_OK) return status;
    status = write_file(target, NULL, 0, text.data, text.size, error);
    gw_blob_free(&text);
    return status;
}

gw_status gw_source_prepare(const gw_source *source, const char *path, const char *directory, gw_error *error) {
    if (source->kind == GW_DATASET_TEXT) return prepare_text(path, directory, error);
    gw_status status = prepare_images(path, GW_SPLIT_TRAIN, directory, error);
    return status == GW_OK ? prepare_images(path, GW_SPLIT_TEST, directory, error) : status;
}
