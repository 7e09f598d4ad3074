/* idx.c - IDX files, the format of MNIST: two zero bytes, the type (8: unsigned byte), the number of dimensions, the
 * dimensions as big-endian 32-bit numbers, then the elements. */
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "data/images.h"

#define TYPE_UNSIGNED_BYTE 8

static const char *const split_words[] = {"train", "t10k"};

static uint32_t big_endian(const uint8_t *bytes) {
    return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
}

static gw_status wrong_magic(const uint8_t *magic, int low, int high, const char *name, gw_error *error) {
    char wanted[32];
    if (low == high) snprintf(wanted, sizeof wanted, "00 00 08 %02x", low);
    else snprintf(wanted, sizeof wanted, "00 00 08 %02x or %02x", low, high);
    return gw_fail(error, GW_INVALID,
                   "%s is not an IDX file of %s: it begins with %02x %02x %02x %02x, expected was %s", name,
                   high == 1 ? "labels" : "images", magic[0], magic[1], magic[2], magic[3], wanted);
}

gw_status gw_idx_parse(const uint8_t *bytes, size_t size, int dims_low, int dims_high, const char *name, gw_idx *idx,
                       gw_error *error) {
    if (size < 4) return gw_fail(error, GW_INVALID, "%s is truncated: %zu bytes are no IDX file", name, size);
    int dims = bytes[3];
    if (bytes[0] || bytes[1] || bytes[2] != TYPE_UNSIGNED_BYTE || dims < dims_low || dims > dims_high)
        return wrong_magic(bytes, dims_low, dims_high, name, error);
    size_t header = 4 + 4 * (size_t)dims;
    if (size < header)
        return gw_fail(error, GW_INVALID, "%s is truncated: %zu bytes, and its header alone has %zu", name, size,
                       header);
    gw_idx parsed = {.dims = dims, .data = bytes + header, .size = 1};
    bool too_large = false;
    for (int i = 0; i < dims; i++) {
        parsed.dim[i] = big_endian(bytes + 4 + 4 * i);
        too_large |= __builtin_mul_overflow(parsed.size, (size_t)parsed.dim[i], &parsed.size);
    }
    if (parsed.size == 0) return gw_fail(error, GW_INVALID, "%s has no elements: a dimension is 0", name);
    if (too_large || parsed.size > size - header)
        return gw_fail(error, GW_INVALID, "%s is truncated: %zu bytes, but its header asks for %u times %zu", name,
                       size, parsed.dim[0], too_large ? SIZE_MAX : parsed.size / parsed.dim[0]);
    if (parsed.size < size - header)
        return gw_fail(error, GW_INVALID, "%s is too long: %zu bytes, expected were %zu", name, size,
                       header + parsed.size);
    *idx = parsed;
    return GW_OK;
}

/* Whether directory/SPLIT-WHAT-idxDIMS-ubyte exists, plain or .gz; path receives its name. */
static bool find(const char *directory, gw_split split, const char *what, int dims, char path[PATH_MAX]) {
    const char *const ends[] = {"", ".gz"};
    for (int i = 0; i < 2; i++) {
        int length =
            snprintf(path, PATH_MAX, "%s/%s-%s-idx%d-ubyte%s", directory, split_words[split], what, dims, ends[i]);
        if (length < PATH_MAX && access(path, F_OK) == 0) return true;
    }
    return false;
}

static bool find_images(const char *directory, gw_split split, char path[PATH_MAX]) {
    return find(directory, split, "images", 4, path) || find(directory, split, "images", 3, path);
}

bool gw_idx_present(const char *directory, gw_split split) {
    char path[PATH_MAX];
    return find_images(directory, split, path) || find(directory, split, "labels", 1, path);
}

static gw_status open_idx(const char *path, int dims_low, int dims_high, gw_blob *blob, gw_idx *idx, gw_error *error) {
    gw_status status = gw_blob_open(path, blob, error);
    return status == GW_OK ? gw_idx_parse(blob->data, blob->size, dims_low, dims_high, path, idx, error) : status;
}

static gw_status load_images(const char *directory, gw_split split, gw_images *images, gw_error *error) {
    char path[PATH_MAX];
    gw_idx idx;
    if (!find_images(directory, split, path))
        return gw_fail(error, GW_SYSTEM, "%s has no %s-images-idx3-ubyte (or .gz)", directory, split_words[split]);
    gw_status status = open_idx(path, 3, 4, &images->pixel_blob, &idx, error);
    if (status != GW_OK) return status;
    uint32_t channels = idx.dims == 4 ? idx.dim[3] : 1;
    if (idx.dim[1] > INT_MAX || idx.dim[2] > INT_MAX || channels > GW_CHANNELS_MAX)
        return gw_fail(error, GW_INVALID,
                       "%s holds images of %u x %u with %u channels; at most %d channels can be used", path, idx.dim[1],
                       idx.dim[2], channels, GW_CHANNELS_MAX);
    images->pixels = idx.data;
    images->count = idx.dim[0];
    images->height = (int)idx.dim[1];
    images->width = (int)idx.dim[2];
    images->channels = (int)channels;
    return GW_OK;
}

static gw_status load_labels(const char *directory, gw_split split, gw_images *images, gw_error *error) {
    char path[PATH_MAX];
    gw_idx idx;
    if (!find(directory, split, "labels", 1, path))
        return gw_fail(error, GW_SYSTEM, "%s has no %s-labels-idx1-ubyte (or .gz)", directory, split_words[split]);
    gw_status status = open_idx(path, 1, 1, &images->label_blob, &idx, error);
    if (status != GW_OK) return status;
    if (idx.dim[0] != images->count)
        return gw_fail(error, GW_INVALID, "%s holds %u labels, expected were %lld, one for each image", path,
                       idx.dim[0], (long long)images->count);
    images->labels = idx.data;
    return GW_OK;
}

gw_status gw_idx_load(const char *directory, gw_split split, gw_images *images, gw_error *error) {
    gw_images loaded = {0};
    gw_status status = load_images(directory, split, &loaded, error);
    if (status == GW_OK) status = load_labels(directory, split, &loaded, error);
    if (status == GW_OK) *images = loaded;
    else gw_images_free(&loaded);
    return status;
}
