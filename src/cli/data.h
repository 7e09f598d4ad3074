/* data.h - fetching a data set with something to see meanwhile, for the commands that need one. */
#ifndef GW_CLI_DATA_H
#define GW_CLI_DATA_H

#include <stdbool.h>

#include "data/sources.h"

/* Fetches into the cache and shows progress on standard error. False: it has said what went wrong, in the name of the
 * command. */
bool gw_data_fetch(const char *command, const gw_source *source, double seconds);

#endif
