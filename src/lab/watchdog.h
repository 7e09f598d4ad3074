/* watchdog.h - something is done when this process ends, however it ends: a child holds the other end of a pipe. */
#ifndef GW_LAB_WATCHDOG_H
#define GW_LAB_WATCHDOG_H

#include <sys/types.h>

#include "base/status.h"

typedef struct gw_watchdog {
    pid_t pid;
    int pipe; /* its end is the signal */
} gw_watchdog;

/* `last` is called in the child, with a copy of this process's memory as it is now. */
gw_status gw_watchdog_open(gw_watchdog *watchdog, void (*last)(void *ctx), void *ctx, gw_error *error);
/* Has it done now, and waits for it. */
void gw_watchdog_close(gw_watchdog *watchdog);

#endif
