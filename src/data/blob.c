/* blob.c - see blob.h. */
#include "data/blob.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

gw_status gw_blob_allocate(size_t size, gw_blob *blob, gw_error *error) {
    uint8_t *data = malloc(size ? size : 1);
    if (!data) return gw_fail(error, GW_MEMORY, "no memory for %zu bytes of a data set", size);
    *blob = (gw_blob){.data = data, .size = size};
    return GW_OK;
}

void gw_blob_free(gw_blob *blob) {
    if (blob->mapped) munmap(blob->data, blob->size);
    else free(blob->data);
    *blob = (gw_blob){0};
}

static gw_status map(int file, const char *path, gw_blob *blob, gw_error *error) {
    struct stat status;
    if (fstat(file, &status) != 0) return gw_fail(error, GW_SYSTEM, "%s cannot be read: %s", path, strerror(errno));
    if (!S_ISREG(status.st_mode)) return gw_fail(error, GW_INVALID, "%s is not a file", path);
    if (status.st_size == 0) return gw_fail(error, GW_INVALID, "%s is empty", path);
    void *data = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_SHARED, file, 0);
    if (data == MAP_FAILED) return gw_fail(error, GW_SYSTEM, "%s cannot be mapped: %s", path, strerror(errno));
    *blob = (gw_blob){.data = data, .size = (size_t)status.st_size, .mapped = true};
    return GW_OK;
}

gw_status gw_blob_map(const char *path, gw_blob *blob, gw_error *error) {
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* opening a FIFO must not block */
    if (file < 0) return gw_fail(error, GW_SYSTEM, "%s cannot be opened: %s", path, strerror(errno));
    gw_status status = map(file, path, blob, error);
    close(file);
    return status;
}

gw_status gw_blob_open(const char *path, gw_blob *blob, gw_error *error) {
    gw_blob plain;
    gw_status status = gw_blob_map(path, &plain, error);
    if (status != GW_OK) return status;
    if (plain.size < 2 || plain.data[0] != 0x1f || plain.data[1] != 0x8b) {
        *blob = plain;
        return GW_OK;
    }
    status = gw_gunzip(plain.data, plain.size, path, blob, error);
    gw_blob_free(&plain);
    return status;
}
