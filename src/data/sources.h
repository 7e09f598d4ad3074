/* sources.h - the catalogue: named data sets, the packages that contain them, and where they are on this machine.
 *
 * Prepared sets are in the cache directory, one directory each: IDX files or one file `text`, uncompressed, so that
 * they can be mapped. A directory appears there by one rename, so it is always complete. */
#ifndef GW_DATA_SOURCES_H
#define GW_DATA_SOURCES_H

#include <limits.h>

#include "base/status.h"
#include "data/dataset.h"

typedef enum gw_package_tool { GW_PACKAGE_APT, GW_PACKAGE_NPM } gw_package_tool;

typedef struct gw_source {
    const char *name; /* NULL ends the catalogue */
    const char *about;
    gw_dataset_kind kind;
    gw_package_tool tool;
    const char *package;
    const char *inside; /* path of the data in the unpacked package; in an installed Debian package, below / */
    int download_mebibytes;
    float mean[GW_CHANNELS_MAX], deviation[GW_CHANNELS_MAX]; /* images: of the training split, pixels from 0 to 1 */
} gw_source;

extern const gw_source gw_sources[];

/* NULL: none of that name. */
const gw_source *gw_source_find(const char *name);

/* $GRADWIRE_CACHE, else $XDG_CACHE_HOME/gradwire, else $HOME/.cache/gradwire; followed by /name unless name is "". */
gw_status gw_cache_path(const char *name, char path[PATH_MAX], gw_error *error);
/* The path of the set: prepared in the cache, or raw in its installed Debian package. False: not on this machine. */
bool gw_source_locate(const gw_source *source, char path[PATH_MAX]);
/* Only the installed Debian package. */
bool gw_source_installed(const gw_source *source, char path[PATH_MAX]);

/* Writes the prepared form of the raw set at path into directory, which must exist. */
gw_status gw_source_prepare(const gw_source *source, const char *path, const char *directory, gw_error *error);

#endif
