/* images.h - labelled images in memory, and the readers of their file formats. */
#ifndef GW_DATA_IMAGES_H
#define GW_DATA_IMAGES_H

#include <stdint.h>

#include "base/status.h"
#include "data/blob.h"
#include "data/dataset.h"

typedef struct gw_images {
    gw_blob pixel_blob, label_blob; /* own pixels and labels */
    const uint8_t *pixels;          /* count x height x width x channels, one byte each */
    const uint8_t *labels;          /* count */
    int64_t count;                  /* 1 .. 2^32 - 1 */
    int height, width, channels;
    int classes; /* 0: largest label + 1 */
} gw_images;

void gw_images_free(gw_images *images);

/* A directory of one of the two kinds below; the error for any other lists the expected files. */
gw_status gw_images_load(const char *directory, gw_split split, gw_images *images, gw_error *error);

/* A directory of IDX files: {train,t10k}-images-idx3-ubyte (or idx4: images with channels) and
 * {train,t10k}-labels-idx1-ubyte, each plain or with .gz. */
gw_status gw_idx_load(const char *directory, gw_split split, gw_images *images, gw_error *error);
bool gw_idx_present(const char *directory, gw_split split);

/* A directory of PNG sheets, one image per row: data_batch_1.png ... with train_lables.json, and test_batch.png with
 * test_lables.json (the package's spelling). */
gw_status gw_sheets_load(const char *directory, gw_split split, gw_images *images, gw_error *error);
bool gw_sheets_present(const char *directory, gw_split split);

/* Generated images. spec: the text after "synthetic", "" or ":count=4096,height=28,...". */
gw_status gw_synthetic_load(const char *spec, gw_split split, gw_images *images, gw_error *error);

/* ---- parsers of bytes in memory; name: of the file, for errors ---- */

#define GW_IDX_DIMS_MAX 4

typedef struct gw_idx {
    int dims;
    uint32_t dim[GW_IDX_DIMS_MAX];
    const uint8_t *data; /* points into the parsed bytes */
    size_t size;         /* the product of the dims */
} gw_idx;

/* An IDX file of unsigned bytes with dims_low to dims_high dimensions. Its size must match the dimensions exactly. */
gw_status gw_idx_parse(const uint8_t *bytes, size_t size, int dims_low, int dims_high, const char *name, gw_idx *idx,
                       gw_error *error);

typedef struct gw_sheet {
    gw_blob pixels; /* rows x columns x channels */
    uint32_t rows, columns;
    int channels; /* 1 or 3 */
} gw_sheet;

/* An 8-bit grey or RGB picture. */
gw_status gw_sheet_decode(const uint8_t *png, size_t size, const char *name, gw_sheet *sheet, gw_error *error);

/* "[3,8,8,0]": whole numbers from 0 to 255; labels receives one byte each. */
gw_status gw_labels_parse(const uint8_t *text, size_t size, const char *name, gw_blob *labels, gw_error *error);

#endif
