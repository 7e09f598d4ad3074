/* checkpoint_write.c - writing checkpoints; see checkpoint.h. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/write_guard.h"
#include "store/checkpoint.h"
#include "store/checkpoint_format.h"

struct gw_checkpoint_writer {
    char path[PATH_MAX], writing[PATH_MAX], previous[PATH_MAX];
    int file;
    uint64_t at;              /* offset of the next section */
    uint8_t *table;           /* in file format */
    uint32_t count, capacity; /* sections in the table */
    bool failed;
};

static gw_status cannot(const gw_checkpoint_writer *writer, const char *what, gw_error *error) {
    return gw_fail(error, GW_SYSTEM, "%s cannot be %s: %s", writer->writing, what, strerror(errno));
}

gw_status gw_checkpoint_begin(const char *path, gw_checkpoint_writer **writer, gw_error *error) {
    gw_checkpoint_writer *made = calloc(1, sizeof *made);
    if (!made) return gw_fail(error, GW_MEMORY, "no memory to write %s", path);
    made->at = GW_HEADER_BYTES;
    made->file = -1;
    gw_status status = GW_OK;
    if (snprintf(made->path, PATH_MAX, "%s", path) >= PATH_MAX ||
        snprintf(made->writing, PATH_MAX, "%s.writing", path) >= PATH_MAX ||
        snprintf(made->previous, PATH_MAX, "%s.previous", path) >= PATH_MAX)
        status = gw_fail(error, GW_INVALID, "the path of a checkpoint is too long: %.100s...", path);
    if (status == GW_OK) {
        made->file = gw_file_create(made->writing, 0644);
        if (made->file < 0) status = cannot(made, "written", error);
    }
    if (status == GW_OK) *writer = made;
    else free(made);
    return status;
}

static bool write_at(int file, const uint8_t *bytes, size_t size, uint64_t at) {
    gw_write_guard guard;
    bool failed = false;
    gw_write_guard_begin(&guard);
    while (size > 0 && !failed) {
        ssize_t written = pwrite(file, bytes, size, (off_t)at);
        failed = written < 0 && errno != EINTR;
        if (written < 0) continue;
        bytes += written;
        size -= (size_t)written;
        at += (uint64_t)written;
    }
    gw_write_guard_end(&guard);
    return !failed;
}

static gw_status check_name(const gw_checkpoint_writer *writer, const char *name, gw_error *error) {
    if (*name == '\0' || strlen(name) >= GW_SECTION_NAME_BYTES)
        return gw_fail(error, GW_INVALID, "a section of %s needs a name of 1 to %d bytes, not \"%.80s\"", writer->path,
                       GW_SECTION_NAME_BYTES - 1, name);
    for (uint32_t i = 0; i < writer->count; i++)
        if (strcmp((const char *)writer->table + (size_t)i * GW_ENTRY_BYTES, name) == 0)
            return gw_fail(error, GW_INVALID, "%s has a section %s already", writer->path, name);
    if (writer->count == GW_SECTIONS_MAX)
        return gw_fail(error, GW_INVALID, "%s has %d sections, as many as can be", writer->path, GW_SECTIONS_MAX);
    return GW_OK;
}

static gw_status grow_table(gw_checkpoint_writer *writer, gw_error *error) {
    if (writer->count < writer->capacity) return GW_OK;
    uint32_t capacity = writer->capacity ? writer->capacity * 2 : 16;
    uint8_t *table = realloc(writer->table, (size_t)capacity * GW_ENTRY_BYTES);
    if (!table) return gw_fail(error, GW_MEMORY, "no memory to write %s", writer->path);
    writer->table = table;
    writer->capacity = capacity;
    return GW_OK;
}

static gw_status add(gw_checkpoint_writer *writer, const char *name, const void *data, size_t bytes, gw_error *error) {
    gw_status status = check_name(writer, name, error);
    if (status == GW_OK) status = grow_table(writer, error);
    if (status != GW_OK) return status;
    uint8_t *entry = writer->table + (size_t)writer->count * GW_ENTRY_BYTES;
    memset(entry, 0, GW_ENTRY_BYTES);
    memcpy(entry + GW_AT_ENTRY_NAME, name, strlen(name));
    gw_put_u64(entry + GW_AT_ENTRY_SIZE, bytes);
    if (!gw_digest(data, bytes, NULL, 0, entry + GW_AT_ENTRY_DIGEST))
        return gw_fail(error, GW_SYSTEM, "libcrypto gives no SHA-256 for %s", writer->path);
    if (!write_at(writer->file, data, bytes, writer->at)) return cannot(writer, "written", error);
    /* The padding is a hole in the file, which reads as zeros. */
    writer->at = (writer->at + bytes + GW_CHECKPOINT_ALIGN - 1) / GW_CHECKPOINT_ALIGN * GW_CHECKPOINT_ALIGN;
    writer->count++;
    return GW_OK;
}

gw_status gw_checkpoint_add(gw_checkpoint_writer *writer, const char *name, const void *data, size_t bytes,
                            gw_error *error) {
    gw_status status = add(writer, name, data, bytes, error);
    if (status != GW_OK) writer->failed = true;
    return status;
}

/* Writes the table, then the header, then syncs the file. */
static gw_status finish(gw_checkpoint_writer *writer, gw_error *error) {
    uint8_t header[GW_HEADER_BYTES] = {0};
    size_t table_bytes = (size_t)writer->count * GW_ENTRY_BYTES;
    if (writer->failed)
        return gw_fail(error, GW_INVALID, "%s is not replaced: a section of it could not be written", writer->path);
    memcpy(header + GW_AT_MAGIC, GW_CHECKPOINT_MAGIC, 8);
    gw_put_u32(header + GW_AT_SECTIONS, writer->count);
    gw_put_u64(header + GW_AT_TABLE, writer->at);
    gw_put_u64(header + GW_AT_SIZE, writer->at + table_bytes);
    if (!gw_digest(header, GW_AT_DIGEST, writer->table, table_bytes, header + GW_AT_DIGEST))
        return gw_fail(error, GW_SYSTEM, "libcrypto gives no SHA-256 for %s", writer->path);
    if (!write_at(writer->file, writer->table, table_bytes, writer->at) ||
        !write_at(writer->file, header, sizeof header, 0) || fsync(writer->file) != 0)
        return cannot(writer, "written", error);
    int file = writer->file;
    writer->file = -1;
    return close(file) == 0 ? GW_OK : cannot(writer, "written", error);
}

/* A rename is durable once its directory is synced. */
static gw_status sync_directory(const char *path, gw_error *error) {
    char directory[PATH_MAX];
    snprintf(directory, sizeof directory, "%s", path);
    char *slash = strrchr(directory, '/');
    if (slash) slash[slash == directory] = '\0';
    const char *name = slash ? directory : ".";
    int file = open(name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool good = file >= 0 && (fsync(file) == 0 || errno == EINVAL); /* EINVAL: cannot sync a directory here */
    int cause = errno;
    if (file >= 0) close(file);
    return good ? GW_OK : gw_fail(error, GW_SYSTEM, "%s cannot be brought to the disk: %s", name, strerror(cause));
}

/* Renames NAME to NAME.previous, unless it is damaged. */
static gw_status keep_previous(const gw_checkpoint_writer *writer, gw_error *error) {
    gw_checkpoint *present;
    gw_error damage = {.status = GW_OK};
    if (access(writer->path, F_OK) != 0) return GW_OK;
    if (gw_checkpoint_open_only(writer->path, &present, &damage) != GW_OK) {
        gw_log(GW_LOG_WARN, -1, "%s; it is replaced, and %s stays as it is", damage.text, writer->previous);
        return GW_OK;
    }
    gw_checkpoint_close(present);
    if (rename(writer->path, writer->previous) == 0) return GW_OK;
    return gw_fail(error, GW_SYSTEM, "%s cannot be kept as %s: %s", writer->path, writer->previous, strerror(errno));
}

gw_status gw_checkpoint_commit(gw_checkpoint_writer *writer, gw_error *error) {
    gw_status status = finish(writer, error);
    if (status == GW_OK) status = keep_previous(writer, error);
    if (status == GW_OK && rename(writer->writing, writer->path) != 0)
        status =
            gw_fail(error, GW_SYSTEM, "%s cannot be renamed to %s: %s", writer->writing, writer->path, strerror(errno));
    if (status == GW_OK) {
        status = sync_directory(writer->path, error);
        writer->writing[0] = '\0'; /* it has been renamed */
    }
    gw_checkpoint_abandon(writer);
    return status;
}

void gw_checkpoint_abandon(gw_checkpoint_writer *writer) {
    if (!writer) return;
    if (writer->file >= 0) close(writer->file);
    if (writer->writing[0] != '\0') unlink(writer->writing);
    free(writer->table);
    free(writer);
}
