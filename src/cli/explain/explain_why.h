/* explain_why.h - gradwire explain --why: what strategy=auto decided in a run. */
#ifndef GW_CLI_EXPLAIN_EXPLAIN_WHY_H
#define GW_CLI_EXPLAIN_EXPLAIN_WHY_H

#include "base/status.h"

/* Prints a file of decisions (decide/decision_file.h), with the ranking and the measurements behind each. On failure
 * nothing is printed. */
gw_status gw_explain_why(const char *path, gw_error *error);

#endif
