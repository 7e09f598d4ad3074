/* sized.c - see sized.h. */
#include "base/sized.h"

#include <string.h>

gw_status gw_sized_read(void *into, size_t known, const void *from, size_t size, size_t least, const char *what,
                        gw_error *error) {
    if (size < least)
        return gw_fail(error, GW_INVALID, "%s has a size of %zu bytes: begin with its _DEFAULT macro, which sets it",
                       what, size);
    for (size_t i = known; i < size; i++)
        if (((const char *)from)[i])
            return gw_fail(error, GW_UNSUPPORTED,
                           "%s: the program sets a field that this library, gradwire %s, does not know: install the "
                           "library of the header that it was compiled with",
                           what, gw_version());
    memcpy(into, from, size < known ? size : known);
    return GW_OK;
}

void gw_sized_write(void *into, size_t size, const void *from, size_t known) {
    memset(into, 0, size);
    memcpy(into, from, size < known ? size : known);
}
