/* flight_recorder.c - see flight_recorder.h. Recording an operation costs a few stores; its text is made when the file
 * is written. */
#include "engine/flight_recorder.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/write_guard.h"

#define RECORD_PREFIX "gradwire-flight-"
#define RECORD_SUFFIX ".txt"
#define REMOVED_MAX 8 /* old records that one new one removes; ranks that fail together share the work */

void gw_flight_begin(gw_flight *flight, const gw_op *op, gw_time now) {
    gw_flight_entry *entry = &flight->entries[flight->count++ % GW_FLIGHT_ENTRIES];
    entry->op = op;
    entry->started = now;
    entry->ended = 0;
    entry->status = GW_OK;
    gw_op_note(op, &entry->brief);
}

void gw_flight_end(gw_flight *flight, const gw_op *op, gw_time now) {
    for (uint64_t back = 1; back <= GW_FLIGHT_ENTRIES && back <= flight->count; back++) {
        gw_flight_entry *entry = &flight->entries[(flight->count - back) % GW_FLIGHT_ENTRIES];
        if (entry->op != op || entry->ended) continue;
        entry->ended = now;
        entry->status = gw_op_status(op);
        return;
    }
}

void gw_flight_add_done(gw_flight *flight, const gw_op_brief *brief, gw_time now) {
    gw_flight_entry *entry = &flight->entries[flight->count++ % GW_FLIGHT_ENTRIES];
    entry->op = NULL;
    entry->started = entry->ended = now;
    entry->status = GW_OK;
    entry->brief = *brief;
}

void gw_flight_undo(gw_flight *flight) { flight->count--; }

static void write_entry(FILE *file, const gw_flight_entry *entry, gw_time now) {
    char text[GW_TEXT_BYTES];
    gw_op_brief_text(&entry->brief, text);
    double ago = (double)(now - entry->started) / 1e9;
    if (entry->ended && entry->ended == entry->started)
        fprintf(file, "%10.6f s ago  %-12s %13s  %s\n", ago, "done", "at once", text);
    else if (entry->ended)
        fprintf(file, "%10.6f s ago  %-12s %10.1f us  %s\n", ago,
                entry->status ? gw_status_text(entry->status) : "done", (double)(entry->ended - entry->started) / 1e3,
                text);
    else fprintf(file, "%10.6f s ago  %-12s %13s  %s\n", ago, "under way", "", text);
}

/* Makes the folders of a path that are missing below its first `base` characters, for this user alone. */
static void make_folders(char *path, size_t base) {
    for (char *at = path + base + 1; at[-1] && *at; at++) {
        if (*at != '/') continue;
        *at = 0;
        mkdir(path, 0700);
        *at = '/';
    }
    if (path[base]) mkdir(path, 0700);
}

/* Tries one folder; -1: it is not named, or cannot be used. */
static int try_folder(char path[GW_FLIGHT_PATH], const char *base, const char *below) {
    if (!base || !*base) return -1;
    int length = snprintf(path, GW_FLIGHT_PATH, "%s%s", base, below);
    if (length < 0 || length >= GW_FLIGHT_PATH) return -1;
    make_folders(path, strlen(base));
    int folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder >= 0 && faccessat(folder, ".", W_OK, 0) == 0) return folder;
    if (folder >= 0) close(folder);
    return -1;
}

/* A folder that is asked for is used or nothing is written. Others are tried in turn. */
static int open_folder(char path[GW_FLIGHT_PATH]) {
    const char *asked = getenv("GRADWIRE_FLIGHT_DIR");
    if (asked && *asked) return try_folder(path, asked, "");
    int folder = try_folder(path, getenv("XDG_STATE_HOME"), "/gradwire");
    if (folder < 0) folder = try_folder(path, getenv("HOME"), "/.local/state/gradwire");
    if (folder < 0) folder = try_folder(path, getenv("TMPDIR"), "");
    return folder < 0 ? try_folder(path, "/tmp", "") : folder;
}

/* In a folder that others write to, no link and no file of theirs may take the place of the record. */
static FILE *create_record(int folder, int rank, char path[GW_FLIGHT_PATH]) {
    char name[64];
    size_t used = strlen(path);
    snprintf(name, sizeof name, RECORD_PREFIX "%d-%d" RECORD_SUFFIX, rank, (int)getpid());
    if ((size_t)snprintf(path + used, GW_FLIGHT_PATH - used, "/%s", name) >= GW_FLIGHT_PATH - used) return NULL;
    unlinkat(folder, name, 0); /* left by an earlier process with the same pid */
    int fd = openat(folder, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    FILE *file = fd >= 0 ? fdopen(fd, "w") : NULL;
    if (!file && fd >= 0) close(fd);
    return file;
}

/* True for a record of this user's. */
static bool is_record(int folder, const char *name, struct stat *about) {
    size_t length = strlen(name), suffix = strlen(RECORD_SUFFIX);
    return strncmp(name, RECORD_PREFIX, strlen(RECORD_PREFIX)) == 0 && length > suffix &&
           strcmp(name + length - suffix, RECORD_SUFFIX) == 0 &&
           fstatat(folder, name, about, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(about->st_mode) &&
           about->st_uid == geteuid();
}

/* Counts the records; the oldest of them is in `oldest`. */
static int count_records(DIR *all, char oldest[NAME_MAX + 1]) {
    struct timespec least = {.tv_sec = 0};
    struct stat about;
    int count = 0;
    rewinddir(all);
    for (struct dirent *entry; (entry = readdir(all));) {
        if (!is_record(dirfd(all), entry->d_name, &about)) continue;
        struct timespec at = about.st_mtim;
        bool older = at.tv_sec < least.tv_sec || (at.tv_sec == least.tv_sec && at.tv_nsec < least.tv_nsec);
        if (count++ && !older) continue;
        least = at;
        strcpy(oldest, entry->d_name);
    }
    return count;
}

/* Usually none or one: each new record removes the one that it displaces. */
static void remove_oldest(int folder) {
    char oldest[NAME_MAX + 1];
    int copy = fcntl(folder, F_DUPFD_CLOEXEC, 0);
    DIR *all = copy >= 0 ? fdopendir(copy) : NULL;
    if (!all && copy >= 0) close(copy);
    for (int tries = 0; all && tries < REMOVED_MAX && count_records(all, oldest) > GW_FLIGHT_RECORDS; tries++)
        if (unlinkat(folder, oldest, 0) != 0) break;
    if (all) closedir(all);
}

static void write_record(FILE *file, const gw_flight *flight, int rank, const gw_error *error) {
    gw_time now = gw_clock_now();
    fprintf(file, "rank %d: %s: %s\nlast operations, oldest first:\n", rank, gw_status_text(error->status),
            error->text);
    uint64_t first = flight->count > GW_FLIGHT_ENTRIES ? flight->count - GW_FLIGHT_ENTRIES : 0;
    for (uint64_t i = first; i < flight->count; i++) write_entry(file, &flight->entries[i % GW_FLIGHT_ENTRIES], now);
}

bool gw_flight_write(const gw_flight *flight, int rank, const gw_error *error, char path[GW_FLIGHT_PATH]) {
    gw_write_guard guard;
    FILE *file = NULL;
    bool written = false;
    gw_write_guard_begin(&guard);
    int folder = open_folder(path);
    if (folder >= 0) file = create_record(folder, rank, path);
    if (file) {
        write_record(file, flight, rank, error);
        written = fclose(file) == 0;
        remove_oldest(folder);
    }
    if (folder >= 0) close(folder);
    gw_write_guard_end(&guard);
    return written;
}
