/* dataset.h - data sets to train on: images with labels, and text as bytes.
 *
 *     gw_dataset_request request = {.source = "fashion-mnist", .split = GW_SPLIT_TRAIN};
 *     status = gw_dataset_open(&request, &dataset, &error);
 *     gw_dataset_batch(dataset, NULL, sampler->order, shard.first, shard.count, images, labels);
 *
 * A source is a name of the catalogue (sources.h), "synthetic", or a path: a directory of IDX files or PNG sheets, or
 * a text file. An open data set is read-only, so any number of threads may use it. */
#ifndef GW_DATA_DATASET_H
#define GW_DATA_DATASET_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

#define GW_CHANNELS_MAX 4
#define GW_TEXT_CLASSES 256

typedef enum gw_split { GW_SPLIT_TRAIN, GW_SPLIT_TEST } gw_split;
typedef enum gw_dataset_kind { GW_DATASET_IMAGES, GW_DATASET_TEXT } gw_dataset_kind;

typedef struct gw_dataset_request {
    const char *source;
    gw_split split; /* text: the last tenth is the test split */
    int window;     /* text: tokens of an example, at least 1; images: ignored */
} gw_dataset_request;

typedef struct gw_dataset_info {
    gw_dataset_kind kind;
    int64_t count;                                           /* examples, 1 .. 2^32 - 1 */
    int height, width, channels;                             /* images, in pixels */
    int window;                                              /* text, in tokens */
    int classes;                                             /* labels and tokens are below this (text: 256) */
    float mean[GW_CHANNELS_MAX], deviation[GW_CHANNELS_MAX]; /* of each channel, with pixels from 0 to 1 */
} gw_dataset_info;

typedef struct gw_dataset gw_dataset;

/* Data augmentation of images. It depends only on the seed, the epoch and the example's index, not on the number of
 * workers or the batch. */
typedef struct gw_augment {
    int pad;   /* shift by up to this many pixels in each direction, filled with black; 0: no shift */
    bool flip; /* mirror left-right with probability 1/2 */
    uint64_t seed;
    uint64_t epoch;
} gw_augment;

gw_status gw_dataset_open(const gw_dataset_request *request, gw_dataset **dataset, gw_error *error);
/* NULL is fine. */
void gw_dataset_close(gw_dataset *dataset);
const gw_dataset_info *gw_dataset_describe(const gw_dataset *dataset);

/* Examples order[first .. first + count); if order is NULL, examples first .. first + count - 1. images: count x height
 * x width x channels (nhwc), each pixel (p / 255 - mean) / deviation; NULL: only the labels are read. augment NULL: no
 * augmentation. */
void gw_dataset_batch(const gw_dataset *dataset, const gw_augment *augment, const uint32_t *order, int64_t first,
                      int64_t count, float *images, int *labels);
/* The same for text: inputs (or NULL) and targets are count x window tokens; a target is the token after its input. */
void gw_dataset_windows(const gw_dataset *dataset, const uint32_t *order, int64_t first, int64_t count, int *inputs,
                        int *targets);

#endif
