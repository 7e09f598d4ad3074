/* png_sheets.c - PNG sheets with one image per row, and one list of labels for all sheets of a split. Npm packages
 * distribute CIFAR-10 in this form: 10,000 rows per sheet, each with 32 x 32 RGB pixels. */
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "data/images.h"

#define SHEETS_MAX 64

/* The path of sheet n, from 0; false: it does not exist. */
static bool sheet_path(const char *directory, gw_split split, int n, char path[PATH_MAX]) {
    int length = split == GW_SPLIT_TRAIN ? snprintf(path, PATH_MAX, "%s/data_batch_%d.png", directory, n + 1)
                                         : snprintf(path, PATH_MAX, "%s/test_batch.png", directory);
    return length < PATH_MAX && (split == GW_SPLIT_TRAIN || n == 0) && access(path, F_OK) == 0;
}

bool gw_sheets_present(const char *directory, gw_split split) {
    char path[PATH_MAX];
    return sheet_path(directory, split, 0, path);
}

static gw_status read_sheet(const char *path, gw_sheet *sheet, gw_error *error) {
    gw_blob file;
    gw_status status = gw_blob_map(path, &file, error);
    if (status != GW_OK) return status;
    status = gw_sheet_decode(file.data, file.size, path, sheet, error);
    gw_blob_free(&file);
    return status;
}

static gw_status take_shape(const gw_sheet *sheet, const char *path, gw_images *images, gw_error *error) {
    int side = (int)lround(sqrt(sheet->columns));
    if ((uint32_t)side * (uint32_t)side != sheet->columns)
        return gw_fail(error, GW_INVALID,
                       "%s is %u pixels wide; a row holds one square image, so that 1024 (32 x 32) would be right",
                       path, sheet->columns);
    images->height = images->width = side;
    images->channels = sheet->channels;
    return GW_OK;
}

/* Appends the rows of a sheet to images. */
static gw_status append(const gw_sheet *sheet, const char *path, gw_images *images, gw_error *error) {
    gw_blob all;
    if (images->count == 0) {
        gw_status status = take_shape(sheet, path, images, error);
        if (status != GW_OK) return status;
    }
    if ((uint32_t)images->width * (uint32_t)images->width != sheet->columns || images->channels != sheet->channels)
        return gw_fail(error, GW_INVALID, "%s is %u pixels wide with %d channels, the sheets before it are %d with %d",
                       path, sheet->columns, sheet->channels, images->width * images->width, images->channels);
    gw_status status = gw_blob_allocate(images->pixel_blob.size + sheet->pixels.size, &all, error);
    if (status != GW_OK) return status;
    if (images->pixel_blob.size) memcpy(all.data, images->pixel_blob.data, images->pixel_blob.size);
    memcpy(all.data + images->pixel_blob.size, sheet->pixels.data, sheet->pixels.size);
    gw_blob_free(&images->pixel_blob);
    images->pixel_blob = all;
    images->pixels = all.data;
    images->count += sheet->rows;
    return GW_OK;
}

static gw_status load_pixels(const char *directory, gw_split split, gw_images *images, gw_error *error) {
    char path[PATH_MAX];
    gw_status status = GW_OK;
    for (int n = 0; status == GW_OK && n < SHEETS_MAX && sheet_path(directory, split, n, path); n++) {
        gw_sheet sheet;
        status = read_sheet(path, &sheet, error);
        if (status != GW_OK) break;
        status = append(&sheet, path, images, error);
        gw_blob_free(&sheet.pixels);
    }
    if (status == GW_OK && images->count == 0)
        status = gw_fail(error, GW_SYSTEM, "%s is not there, or has no rows", path);
    return status;
}

static gw_status load_labels(const char *directory, gw_split split, gw_images *images, gw_error *error) {
    char path[PATH_MAX];
    gw_blob file;
    if (snprintf(path, sizeof path, "%s/%s_lables.json", directory, split == GW_SPLIT_TRAIN ? "train" : "test") >=
        (int)sizeof path)
        return gw_fail(error, GW_INVALID, "the path of the data set is too long: %.100s...", directory);
    gw_status status = gw_blob_map(path, &file, error);
    if (status != GW_OK) return status;
    status = gw_labels_parse(file.data, file.size, path, &images->label_blob, error);
    gw_blob_free(&file);
    if (status != GW_OK) return status;
    if ((int64_t)images->label_blob.size != images->count)
        return gw_fail(error, GW_INVALID, "%s holds %zu labels, but the sheets beside it hold %lld images", path,
                       images->label_blob.size, (long long)images->count);
    images->labels = images->label_blob.data;
    return GW_OK;
}

gw_status gw_sheets_load(const char *directory, gw_split split, gw_images *images, gw_error *error) {
    gw_images loaded = {0};
    gw_status status = load_pixels(directory, split, &loaded, error);
    if (status == GW_OK) status = load_labels(directory, split, &loaded, error);
    if (status == GW_OK) *images = loaded;
    else gw_images_free(&loaded);
    return status;
}
