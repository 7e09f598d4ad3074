/* clock.c - see clock.h. */
#include "base/clock.h"

#include <time.h>

static gw_time read_clock(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (gw_time)now.tv_sec * GW_SECOND + (gw_time)now.tv_nsec;
}

gw_time gw_clock_now(void) { return read_clock(CLOCK_MONOTONIC); }
gw_time gw_clock_coarse(void) { return read_clock(CLOCK_MONOTONIC_COARSE); }
