/* clock.h - the monotonic clock. Only drivers (progress loops, benchmarks, the launcher) read it; all other modules get
 * the time as an argument. */
#ifndef GW_BASE_CLOCK_H
#define GW_BASE_CLOCK_H

#include <stdint.h>

typedef uint64_t gw_time; /* nanoseconds; the driver chooses the origin */

#define GW_SECOND UINT64_C(1000000000)
#define GW_MILLISECOND UINT64_C(1000000)

gw_time gw_clock_now(void);
/* The time of the kernel's last tick, a few milliseconds old; costs a tenth of gw_clock_now. */
gw_time gw_clock_coarse(void);
/* The timeout for poll(2) that ends at `when`: 0 if that has passed, -1 (no timeout) if it is beyond poll's range. */
int gw_clock_poll_ms(gw_time when);

#endif
