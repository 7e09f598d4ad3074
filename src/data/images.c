/* images.c - see images.h. */
#include "data/images.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

void gw_images_free(gw_images *images) {
    gw_blob_free(&images->label_blob);
    gw_blob_free(&images->pixel_blob);
    *images = (gw_images){0};
}

static gw_status check_directory(const char *directory, gw_error *error) {
    struct stat status;
    if (stat(directory, &status) != 0)
        return gw_fail(error, GW_SYSTEM, "%s cannot be opened: %s", directory, strerror(errno));
    if (!S_ISDIR(status.st_mode)) return gw_fail(error, GW_INVALID, "%s is not a directory", directory);
    return GW_OK;
}

gw_status gw_images_load(const char *directory, gw_split split, gw_images *images, gw_error *error) {
    gw_status status = check_directory(directory, error);
    if (status != GW_OK) return status;
    if (gw_idx_present(directory, split)) return gw_idx_load(directory, split, images, error);
    if (gw_sheets_present(directory, split)) return gw_sheets_load(directory, split, images, error);
    return gw_fail(error, GW_INVALID, "%s holds no data set; expected was %s", directory,
                   split == GW_SPLIT_TRAIN ? "train-images-idx3-ubyte (or .gz) or data_batch_1.png"
                                           : "t10k-images-idx3-ubyte (or .gz) or test_batch.png");
}
