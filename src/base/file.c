/* file.c - see file.h. */
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/write_guard.h"

gw_status gw_file_read(const char *path, size_t most, char **bytes, size_t *size, gw_error *error) {
    gw_status status = GW_OK;
    FILE *file = fopen(path, "re");
    char *memory = malloc(most + 1);
    size_t got = file && memory ? fread(memory, 1, most + 1, file) : 0;
    if (!file || ferror(file)) status = gw_fail(error, GW_SYSTEM, "cannot read %s: %s", path, strerror(errno));
    else if (!memory) status = gw_fail(error, GW_MEMORY, "no memory to read %s", path);
    else if (got > most)
        status = gw_fail(error, GW_INVALID, "%s has more than the %zu bytes that such a file may have", path, most);
    if (file) fclose(file);
    if (status) {
        free(memory);
        return status;
    }
    *bytes = memory;
    *size = got;
    return GW_OK;
}

int gw_file_create(const char *path, unsigned mode) {
    unlink(path);
    return open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
}

/* Takes over fd. meant: for the sentence. */
static gw_status write_whole(int fd, gw_file_writer *write, const void *ctx, const char *meant, gw_error *error) {
    gw_write_guard guard;
    FILE *out = fd >= 0 ? fdopen(fd, "w") : NULL;
    if (!out) {
        gw_fail(error, GW_SYSTEM, "cannot write %s: %s", meant, strerror(errno));
        if (fd >= 0) close(fd);
        return GW_SYSTEM;
    }
    gw_write_guard_begin(&guard);
    write(ctx, out);
    bool whole = fflush(out) == 0 && !ferror(out);
    int cause = errno;
    if (fclose(out) != 0 && whole) {
        whole = false;
        cause = errno;
    }
    gw_write_guard_end(&guard);
    return whole ? GW_OK : gw_fail(error, GW_SYSTEM, "cannot write %s: %s", meant, strerror(cause));
}

gw_status gw_file_replace(const char *path, gw_file_writer *write, const void *ctx, gw_error *error) {
    struct stat there;
    if (stat(path, &there) == 0 && !S_ISREG(there.st_mode))
        return write_whole(open(path, O_WRONLY | O_TRUNC | O_CLOEXEC), write, ctx, path, error);
    char *temporary = NULL;
    /* The pid in the name keeps apart two processes that replace the same file. */
    if (asprintf(&temporary, "%s.%d.part", path, (int)getpid()) < 0)
        return gw_fail(error, GW_MEMORY, "no memory to write %s", path);
    gw_status status = write_whole(gw_file_create(temporary, 0666), write, ctx, path, error);
    if (status == GW_OK && rename(temporary, path) != 0)
        status = gw_fail(error, GW_SYSTEM, "cannot write %s: %s", path, strerror(errno));
    if (status) unlink(temporary);
    free(temporary);
    return status;
}
