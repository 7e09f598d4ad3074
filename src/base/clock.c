/* clock.c - see clock.h. */
#include "base/clock.h"

#include <limits.h>
#include <time.h>

static gw_time read_clock(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (gw_time)now.tv_sec * GW_SECOND + (gw_time)now.tv_nsec;
}

gw_time gw_clock_now(void) { return read_clock(CLOCK_MONOTONIC); }
gw_time gw_clock_coarse(void) { return read_clock(CLOCK_MONOTONIC_COARSE); }

int gw_clock_poll_ms(gw_time when) {
    gw_time now = gw_clock_now();
    if (when <= now) return 0;
    gw_time ms = (when - now) / GW_MILLISECOND + 1;
    return ms > INT_MAX ? -1 : (int)ms;
}
