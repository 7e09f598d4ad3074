/* clock.c - see clock.h. */
#include "base/clock.h"

#include <time.h>

gw_time gw_clock_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (gw_time)now.tv_sec * GW_SECOND + (gw_time)now.tv_nsec;
}
