/* tool.h - running a tool of the system, without a shell and with a deadline. */
#ifndef GW_DATA_TOOL_H
#define GW_DATA_TOOL_H

#include "base/status.h"

typedef struct gw_tool {
    const char *const *words; /* the command line; NULL at the end */
    const char *directory;    /* where it runs */
    const char *log;          /* file for what it prints, absolute or as seen from here */
    double seconds;           /* how long it may take */
    void (*tick)(void *ctx);  /* several times a second while it runs */
    void *ctx;
} gw_tool;

/* GW_UNSUPPORTED: there is no such tool. GW_TIMEOUT: it was ended. GW_SYSTEM: it failed, and the sentence has what it
 * said. */
gw_status gw_data_tool_run(const gw_tool *tool, gw_error *error);

#endif
