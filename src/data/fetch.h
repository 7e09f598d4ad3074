/* fetch.h - downloads a data set of the catalogue into the cache, with the package manager that distributes it. */
#ifndef GW_DATA_FETCH_H
#define GW_DATA_FETCH_H

#include <stdint.h>

#include "base/status.h"
#include "data/sources.h"

/* doing: "downloading", "unpacking" or "preparing"; bytes: downloaded so far, 0 if unknown. Called several times a
 * second, and at least once in each phase that runs. */
typedef void gw_source_fetch_report(void *ctx, const char *doing, uint64_t bytes);

/* On GW_OK the complete set is in the cache and replaces an older copy; otherwise the cache is unchanged.
 * seconds: timeout of each tool it runs. */
gw_status gw_source_fetch(const gw_source *source, double seconds, gw_source_fetch_report *report, void *ctx,
                          gw_error *error);

#endif
