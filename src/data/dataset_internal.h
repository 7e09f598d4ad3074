/* dataset_internal.h - an open data set: dataset.c sets it up, batch.c reads it. */
#ifndef GW_DATA_DATASET_INTERNAL_H
#define GW_DATA_DATASET_INTERNAL_H

#include "data/dataset.h"
#include "data/images.h"

struct gw_dataset {
    gw_dataset_info info;
    gw_images images;                                    /* kind images */
    gw_blob text;                                        /* kind text: the whole text */
    const uint8_t *part;                                 /* start of this split in text */
    float scale[GW_CHANNELS_MAX], bias[GW_CHANNELS_MAX]; /* pixel byte * scale + bias */
};

#endif
