/* fuzz_data.c - any bytes as each kind of file of a data set. The first byte chooses which. A refusal must name the
 * file in a sentence; data that is read must lie within its bounds. */
#include <stdlib.h>
#include <string.h>

#include "data/images.h"
#include "data/text.h"

#define NAME "fuzz-file"

static void demand(bool condition) {
    if (!condition) abort();
}

/* Reads every byte, so that one out of bounds is seen. */
static void touch(const uint8_t *bytes, size_t size) {
    volatile uint8_t sum = 0;
    for (size_t i = 0; i < size; i++) sum = (uint8_t)(sum + bytes[i]);
}

static gw_status try_idx(const uint8_t *data, size_t size, gw_error *error) {
    gw_idx idx;
    gw_status status = gw_idx_parse(data, size, 1, GW_IDX_DIMS_MAX, NAME, &idx, error);
    if (status == GW_OK) touch(idx.data, idx.size);
    return status;
}

static gw_status try_sheet(const uint8_t *data, size_t size, gw_error *error) {
    gw_sheet sheet;
    gw_status status = gw_sheet_decode(data, size, NAME, &sheet, error);
    if (status != GW_OK) return status;
    demand(sheet.pixels.size == (size_t)sheet.rows * sheet.columns * (size_t)sheet.channels);
    touch(sheet.pixels.data, sheet.pixels.size);
    gw_blob_free(&sheet.pixels);
    return status;
}

static gw_status try_blob(gw_status status, gw_blob *blob) {
    if (status == GW_OK) {
        touch(blob->data, blob->size);
        gw_blob_free(blob);
    }
    return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    gw_blob blob = {0};
    gw_error error = {.status = GW_OK};
    gw_status status = GW_OK;
    if (size == 0) return 0;
    int kind = data[0] % 5;
    uint8_t *bytes = malloc(size - 1 ? size - 1 : 1); /* exactly as long, so that reading beyond is seen */
    demand(bytes != NULL);
    memcpy(bytes, data + 1, --size);
    if (kind == 0) status = try_idx(bytes, size, &error);
    if (kind == 1) status = try_sheet(bytes, size, &error);
    if (kind == 2) status = try_blob(gw_labels_parse(bytes, size, NAME, &blob, &error), &blob);
    if (kind == 3) status = try_blob(gw_gunzip(bytes, size, NAME, &blob, &error), &blob);
    if (kind == 4) status = try_blob(gw_archive_decode(bytes, size, NAME, &blob, &error), &blob);
    demand(status == GW_OK || status == GW_MEMORY || strstr(error.text, NAME) != NULL);
    free(bytes);
    return 0;
}
