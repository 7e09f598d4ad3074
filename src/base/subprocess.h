/* subprocess.h - runs a program of the system to its end, without a shell and with a deadline. */
#ifndef GW_BASE_SUBPROCESS_H
#define GW_BASE_SUBPROCESS_H

#include <stdbool.h>

#include "base/status.h"

typedef struct gw_subprocess {
    const char *const *words; /* the command line; NULL at the end */
    const char *directory;    /* where it runs; NULL: here */
    const char *log;          /* file for its output, absolute or as seen from here; NULL: kept in memory */
    double seconds;           /* how long it may take */
    bool apart;               /* gets no signals of the terminal: it must run to its end */
    void (*tick)(void *ctx);  /* called several times a second while it runs; NULL: none */
    void *ctx;
} gw_subprocess;

/* GW_UNSUPPORTED: there is no such program. GW_TIMEOUT: it was ended. GW_SYSTEM: it failed; the error quotes the
 * command and a line of its output. error may be NULL. */
gw_status gw_subprocess_run(const gw_subprocess *tool, gw_error *error);

#endif
