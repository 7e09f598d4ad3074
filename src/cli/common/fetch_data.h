/* fetch_data.h - fetches a data set with a progress display, for several commands. */
#ifndef GW_CLI_COMMON_FETCH_DATA_H
#define GW_CLI_COMMON_FETCH_DATA_H

#include <stdbool.h>

#include "data/sources.h"

/* Fetches into the cache and shows progress on standard error. False: it has printed the error, with the command's
 * name. */
bool gw_data_fetch(const char *command, const gw_source *source, double seconds);

#endif
