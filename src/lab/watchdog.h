/* watchdog.h - runs a function when this process ends, however it ends: another process waits for the end of a pipe. It
 * is not a child of this one, so code that kills all children (launch/subreaper.h) spares it. */
#ifndef GW_LAB_WATCHDOG_H
#define GW_LAB_WATCHDOG_H

#include "base/status.h"

typedef struct gw_watchdog {
    int alive; /* the watchdog acts when this end closes */
    int done;  /* reaches its end when the watchdog has finished */
} gw_watchdog;

/* `last` runs in the other process, with a copy of this one's memory at the time of this call. */
gw_status gw_watchdog_open(gw_watchdog *watchdog, void (*last)(void *ctx), void *ctx, gw_error *error);
/* Runs `last` now, and waits for it, 30 s at most. */
void gw_watchdog_close(gw_watchdog *watchdog);

#endif
