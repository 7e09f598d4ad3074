/* clock.h - the monotonic clock. Only drivers (progress loops, benchmarks, the launcher) read it; rooms are given the
 * time as an argument. */
#ifndef GW_BASE_CLOCK_H
#define GW_BASE_CLOCK_H

#include <stdint.h>

typedef uint64_t gw_time; /* nanoseconds; the origin is the driver's */

#define GW_SECOND UINT64_C(1000000000)
#define GW_MILLISECOND UINT64_C(1000000)

gw_time gw_clock_now(void);
/* As of the kernel's last tick, some milliseconds ago: costs a tenth. */
gw_time gw_clock_coarse(void);
/* How long poll(2) is to wait until then: 0 where it has passed, -1 (for ever) where it is beyond what poll takes. */
int gw_clock_poll_ms(gw_time when);

#endif
