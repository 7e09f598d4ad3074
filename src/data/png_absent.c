/* png_absent.c - PNG sheets in a build without libpng: the error says what is missing. */
#include "data/images.h"

gw_status gw_sheet_decode(const uint8_t *bytes, size_t size, const char *name, gw_sheet *sheet, gw_error *error) {
    (void)bytes, (void)size, (void)sheet;
    return gw_fail(error, GW_UNSUPPORTED,
                   "%s is a PNG sheet, and this gradwire was built without libpng: install libpng-dev and build again",
                   name);
}
