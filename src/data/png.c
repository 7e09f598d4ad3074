/* png.c - decodes PNG pictures with libpng. */
#include <png.h>

#include "data/images.h"

#define DEFLATE_RATIO_MAX 1032 /* largest expansion of a deflate stream */

static gw_status refuse(const char *name, const png_image *png, gw_error *error) {
    return gw_fail(error, GW_INVALID, "%s is not a whole PNG picture: %s", name, png->message);
}

gw_status gw_sheet_decode(const uint8_t *bytes, size_t size, const char *name, gw_sheet *sheet, gw_error *error) {
    png_image png = {.version = PNG_IMAGE_VERSION};
    gw_sheet decoded = {0};
    gw_status status;
    if (!png_image_begin_read_from_memory(&png, bytes, size)) return refuse(name, &png, error);
    if (png.format & (PNG_FORMAT_FLAG_ALPHA | PNG_FORMAT_FLAG_LINEAR)) {
        status = gw_fail(error, GW_INVALID,
                         "%s has an alpha channel or 16 bits a pixel; expected were 8-bit grey or RGB", name);
        goto fail;
    }
    decoded.channels = png.format & PNG_FORMAT_FLAG_COLOR ? 3 : 1;
    decoded.rows = png.height;
    decoded.columns = png.width;
    png.format = decoded.channels == 3 ? PNG_FORMAT_RGB : PNG_FORMAT_GRAY;
    uint64_t wanted = (uint64_t)png.height * png.width * (unsigned)decoded.channels;
    if (wanted > size * (uint64_t)DEFLATE_RATIO_MAX || wanted > GW_BLOB_BYTES_MAX) {
        status = gw_fail(error, GW_INVALID, "%s is truncated: %zu bytes cannot hold %u x %u pixels", name, size,
                         decoded.columns, decoded.rows);
        goto fail;
    }
    if ((status = gw_blob_allocate((size_t)wanted, &decoded.pixels, error)) != GW_OK) goto fail;
    /* A libpng warning means damaged data that libpng has replaced. */
    if (!png_image_finish_read(&png, NULL, decoded.pixels.data, 0, NULL) || png.warning_or_error) {
        status = refuse(name, &png, error);
        goto fail;
    }
    *sheet = decoded;
    return GW_OK;
fail:
    gw_blob_free(&decoded.pixels);
    png_image_free(&png);
    return status;
}
