/* checkpoint_read.c - reading and verifying checkpoints; see checkpoint.h. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "store/checkpoint.h"
#include "store/checkpoint_format.h"

struct gw_checkpoint {
    char *path;
    uint8_t *bytes; /* the whole file, aligned to 64 */
    const uint8_t *table;
    const uint8_t **sections; /* pointers into bytes */
    uint32_t count;
};

_Bool gw_digest(const void *first, size_t first_bytes, const void *second, size_t second_bytes,
                uint8_t digest[GW_DIGEST_BYTES]) {
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    bool good = context && EVP_DigestInit_ex(context, EVP_sha256(), NULL) &&
                EVP_DigestUpdate(context, first, first_bytes) && EVP_DigestUpdate(context, second, second_bytes) &&
                EVP_DigestFinal_ex(context, digest, NULL);
    EVP_MD_CTX_free(context);
    return good;
}

static bool digest_is(const void *first, size_t first_bytes, const void *second, size_t second_bytes,
                      const uint8_t *wanted) {
    uint8_t digest[GW_DIGEST_BYTES];
    return gw_digest(first, first_bytes, second, second_bytes, digest) && memcmp(digest, wanted, sizeof digest) == 0;
}

static gw_status verify_header(const uint8_t *bytes, size_t size, const char *name, gw_error *error) {
    if (size < GW_HEADER_BYTES)
        return gw_fail(error, GW_INVALID, "%s is truncated: %zu bytes are no checkpoint", name, size);
    if (memcmp(bytes, GW_CHECKPOINT_MAGIC, 8) != 0)
        return gw_fail(error, GW_INVALID, "%s is not a whole checkpoint: it does not begin with " GW_CHECKPOINT_MAGIC,
                       name);
    uint64_t wanted = gw_get_u64(bytes + GW_AT_SIZE), table = gw_get_u64(bytes + GW_AT_TABLE);
    if (wanted != size)
        return gw_fail(error, GW_INVALID, "%s is truncated or altered: it has %zu bytes, expected were %llu", name,
                       size, (unsigned long long)wanted);
    uint64_t count = gw_get_u32(bytes + GW_AT_SECTIONS);
    if (count > GW_SECTIONS_MAX || table < GW_HEADER_BYTES || table > size || size - table != count * GW_ENTRY_BYTES ||
        !digest_is(bytes, GW_AT_DIGEST, bytes + table, size - table, bytes + GW_AT_DIGEST))
        return gw_fail(error, GW_INVALID, "%s is altered: its table of sections does not match its checksum", name);
    return GW_OK;
}

/* Verifies the section at *at and its zero padding; *at moves to the next. */
static gw_status verify_section(const uint8_t *bytes, uint64_t *at, uint64_t end, const uint8_t *entry,
                                const char *name, gw_error *error) {
    uint64_t size = gw_get_u64(entry + GW_AT_ENTRY_SIZE);
    const char *section = (const char *)entry + GW_AT_ENTRY_NAME;
    if (size > end - *at || memchr(section, 0, GW_SECTION_NAME_BYTES) == NULL)
        return gw_fail(error, GW_INVALID, "%s is altered: its sections do not fit into it", name);
    if (!digest_is(bytes + *at, size, NULL, 0, entry + GW_AT_ENTRY_DIGEST))
        return gw_fail(error, GW_INVALID, "%s is altered: its section %s does not match its checksum", name, section);
    *at += size;
    for (; *at < end && *at % GW_CHECKPOINT_ALIGN != 0; ++*at)
        if (bytes[*at] != 0) return gw_fail(error, GW_INVALID, "%s is altered after its section %s", name, section);
    return GW_OK;
}

static gw_status verify(gw_checkpoint *checkpoint, size_t size, gw_error *error) {
    gw_status status = verify_header(checkpoint->bytes, size, checkpoint->path, error);
    if (status != GW_OK) return status;
    uint64_t table = gw_get_u64(checkpoint->bytes + GW_AT_TABLE), at = GW_HEADER_BYTES;
    checkpoint->table = checkpoint->bytes + table;
    checkpoint->count = gw_get_u32(checkpoint->bytes + GW_AT_SECTIONS);
    checkpoint->sections = calloc((size_t)checkpoint->count + 1, sizeof *checkpoint->sections);
    if (!checkpoint->sections) return gw_fail(error, GW_MEMORY, "no memory to read %s", checkpoint->path);
    for (uint32_t i = 0; i < checkpoint->count; i++) {
        checkpoint->sections[i] = checkpoint->bytes + at;
        status = verify_section(checkpoint->bytes, &at, table, checkpoint->table + (size_t)i * GW_ENTRY_BYTES,
                                checkpoint->path, error);
        if (status != GW_OK) return status;
    }
    if (at != table)
        return gw_fail(error, GW_INVALID, "%s is altered: there are bytes that belong to no section", checkpoint->path);
    return GW_OK;
}

/* Allocates a checkpoint of size bytes, to be filled and verified. */
static gw_status make(const char *path, size_t size, gw_checkpoint **checkpoint, gw_error *error) {
    gw_checkpoint *made = calloc(1, sizeof *made);
    if (made) {
        made->path = strdup(path);
        made->bytes = aligned_alloc(GW_CHECKPOINT_ALIGN, (size / GW_CHECKPOINT_ALIGN + 1) * GW_CHECKPOINT_ALIGN);
    }
    if (made && made->path && made->bytes) {
        *checkpoint = made;
        return GW_OK;
    }
    gw_checkpoint_close(made);
    return gw_fail(error, GW_MEMORY, "no memory to read the %zu bytes of %s", size, path);
}

gw_status gw_checkpoint_parse(const void *bytes, size_t size, const char *name, gw_checkpoint **checkpoint,
                              gw_error *error) {
    gw_checkpoint *made;
    gw_status status = make(name, size, &made, error);
    if (status != GW_OK) return status;
    if (size) memcpy(made->bytes, bytes, size);
    status = verify(made, size, error);
    if (status == GW_OK) *checkpoint = made;
    else gw_checkpoint_close(made);
    return status;
}

static bool read_all(int file, uint8_t *bytes, size_t size) {
    while (size > 0) {
        ssize_t got = read(file, bytes, size);
        if (got < 0 && errno == EINTR) continue;
        if (got == 0) errno = EIO; /* the file has become shorter */
        if (got <= 0) return false;
        bytes += got;
        size -= (size_t)got;
    }
    return true;
}

static gw_status read_file(int file, const char *path, gw_checkpoint **checkpoint, gw_error *error) {
    struct stat about;
    gw_checkpoint *made;
    if (fstat(file, &about) != 0) return gw_fail(error, GW_SYSTEM, "%s cannot be read: %s", path, strerror(errno));
    if (!S_ISREG(about.st_mode)) return gw_fail(error, GW_INVALID, "%s is not a file", path);
    gw_status status = make(path, (size_t)about.st_size, &made, error);
    if (status != GW_OK) return status;
    if (!read_all(file, made->bytes, (size_t)about.st_size))
        status = gw_fail(error, GW_SYSTEM, "%s cannot be read: %s", path, strerror(errno));
    if (status == GW_OK) status = verify(made, (size_t)about.st_size, error);
    if (status == GW_OK) *checkpoint = made;
    else gw_checkpoint_close(made);
    return status;
}

gw_status gw_checkpoint_open_only(const char *path, gw_checkpoint **checkpoint, gw_error *error) {
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO must not block here */
    if (file < 0) return gw_fail(error, GW_SYSTEM, "%s cannot be opened: %s", path, strerror(errno));
    gw_status status = read_file(file, path, checkpoint, error);
    close(file);
    return status;
}

gw_status gw_checkpoint_open(const char *path, gw_checkpoint **checkpoint, gw_error *error) {
    char previous[PATH_MAX];
    gw_error first = {.status = GW_OK}, second = {.status = GW_OK};
    if (gw_checkpoint_open_only(path, checkpoint, &first) == GW_OK) return GW_OK;
    if (snprintf(previous, sizeof previous, "%s.previous", path) >= (int)sizeof previous)
        return gw_fail(error, first.status, "%s", first.text);
    if (gw_checkpoint_open_only(previous, checkpoint, &second) == GW_OK) {
        gw_log(GW_LOG_WARN, -1, "%s; %s is used instead", first.text, previous);
        return GW_OK;
    }
    return gw_fail(error, first.status, "%.250s; nor can the one before it be used: %.200s", first.text, second.text);
}

const char *gw_checkpoint_path(const gw_checkpoint *checkpoint) { return checkpoint->path; }

uint32_t gw_checkpoint_sections(const gw_checkpoint *checkpoint) { return checkpoint->count; }

const char *gw_checkpoint_section_name(const gw_checkpoint *checkpoint, uint32_t i) {
    return (const char *)checkpoint->table + (size_t)i * GW_ENTRY_BYTES + GW_AT_ENTRY_NAME;
}

const void *gw_checkpoint_find(const gw_checkpoint *checkpoint, const char *name, size_t *bytes) {
    for (uint32_t i = 0; i < checkpoint->count; i++) {
        if (strcmp(gw_checkpoint_section_name(checkpoint, i), name) != 0) continue;
        *bytes = (size_t)gw_get_u64(checkpoint->table + (size_t)i * GW_ENTRY_BYTES + GW_AT_ENTRY_SIZE);
        return checkpoint->sections[i];
    }
    return NULL;
}

void gw_checkpoint_close(gw_checkpoint *checkpoint) {
    if (!checkpoint) return;
    free(checkpoint->sections);
    free(checkpoint->bytes);
    free(checkpoint->path);
    free(checkpoint);
}
