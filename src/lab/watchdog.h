/* watchdog.h - a process that ends when this one ends, however it ends: it sees the end of a pipe. It may work until
 * then, and do one last thing. It is not a child of this process, so code that kills all children (launch/subreaper.h)
 * spares it. */
#ifndef GW_LAB_WATCHDOG_H
#define GW_LAB_WATCHDOG_H

#include "base/status.h"

#define GW_WATCHDOG_KEEP_MAX 64

typedef struct gw_watchdog {
    int alive; /* the watchdog acts when this end closes */
    int done;  /* reaches its end when the watchdog has finished */
} gw_watchdog;

/* Runs in the other process, with a copy of this one's memory at the time of gw_watchdog_open. */
typedef struct gw_watchdog_duty {
    void (*work)(void *ctx, int alive, const int *kept); /* until `alive` can be read; NULL: it waits for that */
    void (*last)(void *ctx);                             /* after that; NULL: nothing */
    void *ctx;
    const int *keep; /* descriptors for `work`, which sees them under other numbers; all others are closed */
    int keep_count;
} gw_watchdog_duty;

gw_status gw_watchdog_open(gw_watchdog *watchdog, const gw_watchdog_duty *duty, gw_error *error);
/* Ends the work, and waits for the last thing, 30 s at most. */
void gw_watchdog_close(gw_watchdog *watchdog);

#endif
