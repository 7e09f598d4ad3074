/* watchdog.h - something is done when this process ends, however it ends: another process holds the end of a pipe. It
 * is no child of this one, so that whoever ends all children (launch/family.h) leaves it alone. */
#ifndef GW_LAB_WATCHDOG_H
#define GW_LAB_WATCHDOG_H

#include "base/status.h"

typedef struct gw_watchdog {
    int alive; /* its end is the sign to begin */
    int done;  /* ends when all is done */
} gw_watchdog;

/* `last` is called in the other process, with a copy of this one's memory as it is now. */
gw_status gw_watchdog_open(gw_watchdog *watchdog, void (*last)(void *ctx), void *ctx, gw_error *error);
/* Has it done now, and waits for it, 30 s at most. */
void gw_watchdog_close(gw_watchdog *watchdog);

#endif
