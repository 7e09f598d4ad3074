/* announced.c - see announced.h. */
#include "base/announced.h"

#include <stdlib.h>

gw_status gw_announced_add(size_t *total, uint64_t bytes, int from, const char *what, gw_error *error) {
    if (bytes >= PTRDIFF_MAX - *total)
        return gw_fail_rank(error, GW_PROTOCOL, from, "rank %d announced %llu bytes of %s, more than any memory holds",
                            from, (unsigned long long)bytes, what);
    *total += (size_t)bytes;
    return GW_OK;
}

void *gw_announced_alloc(uint64_t bytes, int from, const char *what, gw_error *error) {
    size_t total = 1;
    if (gw_announced_add(&total, bytes, from, what, error)) return NULL;
    void *memory = malloc(total);
    if (!memory)
        gw_fail(error, GW_MEMORY, "out of memory for the %llu bytes of %s from rank %d", (unsigned long long)bytes,
                what, from);
    return memory;
}
