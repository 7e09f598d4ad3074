/* tool.h - running one of the system's programs to its end, without a shell and with a deadline. */
#ifndef GW_BASE_TOOL_H
#define GW_BASE_TOOL_H

#include <stdbool.h>

#include "base/status.h"

typedef struct gw_tool {
    const char *const *words; /* the command line; NULL at the end */
    const char *directory;    /* where it runs; NULL: here */
    const char *log;          /* file for what it prints, absolute or as seen from here; NULL: kept in memory */
    double seconds;           /* how long it may take */
    bool apart;               /* signals of the terminal are not for it: it must finish what it began */
    void (*tick)(void *ctx);  /* several times a second while it runs; NULL: none */
    void *ctx;
} gw_tool;

/* GW_UNSUPPORTED: there is no such tool. GW_TIMEOUT: it was ended. GW_SYSTEM: it failed, and the sentence quotes the
 * command and what it said. With error NULL nobody wants to know. */
gw_status gw_tool_run(const gw_tool *tool, gw_error *error);

#endif
