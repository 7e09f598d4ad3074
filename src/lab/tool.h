/* tool.h - runs one of the system's programs to its end. */
#ifndef GW_LAB_TOOL_H
#define GW_LAB_TOOL_H

#include "base/status.h"

/* argv ends with NULL. GW_SYSTEM where it cannot be run, or fails; the error quotes the command and what it said. With
 * error NULL nobody wants to know. */
gw_status gw_tool_run(const char *const *argv, gw_error *error);

#endif
