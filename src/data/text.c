/* text.c - see text.h. */
#include "data/text.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static int is_text(const struct dirent *entry) {
    size_t length = strlen(entry->d_name);
    return entry->d_name[0] != '.' && length > 4 && strcmp(entry->d_name + length - 4, ".txt") == 0;
}

/* Byte order, not the locale's: the joined text must not depend on the locale. */
static int by_name(const struct dirent **a, const struct dirent **b) { return strcmp((*a)->d_name, (*b)->d_name); }

static gw_status append(const char *path, gw_blob *text, gw_error *error) {
    gw_blob file;
    gw_status status = gw_blob_open(path, &file, error);
    if (status != GW_OK) return status;
    uint8_t *data = realloc(text->data, text->size + file.size + 1);
    if (!data) {
        gw_blob_free(&file);
        return gw_fail(error, GW_MEMORY, "no memory to read %s", path);
    }
    memcpy(data + text->size, file.data, file.size);
    text->data = data;
    text->size += file.size;
    text->data[text->size++] = '\n';
    gw_blob_free(&file);
    return GW_OK;
}

static gw_status join(const char *directory, gw_blob *text, gw_error *error) {
    struct dirent **entries;
    char path[PATH_MAX];
    gw_blob joined = {0};
    int count = scandir(directory, &entries, is_text, by_name);
    if (count < 0) return gw_fail(error, GW_SYSTEM, "%s cannot be listed: %s", directory, strerror(errno));
    gw_status status = GW_OK;
    if (count == 0) status = gw_fail(error, GW_INVALID, "%s holds no text; expected were files *.txt", directory);
    for (int i = 0; i < count; i++) {
        if (status == GW_OK && snprintf(path, sizeof path, "%s/%s", directory, entries[i]->d_name) >= (int)sizeof path)
            status = gw_fail(error, GW_INVALID, "a path in %.200s is too long", directory);
        if (status == GW_OK) status = append(path, &joined, error);
        free(entries[i]);
    }
    free(entries);
    if (status == GW_OK) *text = joined;
    else gw_blob_free(&joined);
    return status;
}

gw_status gw_text_load(const char *path, gw_blob *text, gw_error *error) {
    struct stat about;
    if (stat(path, &about) == 0 && S_ISDIR(about.st_mode)) return join(path, text, error);
    gw_blob file;
    gw_status status = gw_blob_open(path, &file, error);
    if (status != GW_OK) return status;
    if (!gw_archive_is(file.data, file.size)) {
        *text = file;
        return GW_OK;
    }
    status = gw_archive_decode(file.data, file.size, path, text, error);
    gw_blob_free(&file);
    return status;
}
