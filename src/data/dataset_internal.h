/* dataset_internal.h - what open (dataset.c) sets up and batches (batch.c) read. */
#ifndef GW_DATA_DATASET_INTERNAL_H
#define GW_DATA_DATASET_INTERNAL_H

#include "data/dataset.h"
#include "data/images.h"

struct gw_dataset {
    gw_dataset_info info;
    gw_images images;                                    /* kind images */
    gw_blob text;                                        /* kind text: the whole of it */
    const uint8_t *part;                                 /* of text: where this split begins */
    float scale[GW_CHANNELS_MAX], bias[GW_CHANNELS_MAX]; /* pixel byte * scale + bias */
};

#endif
