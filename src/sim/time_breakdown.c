/* time_breakdown.c - see time_breakdown.h. */
#include "sim/time_breakdown.h"

const char *gw_time_part_name(gw_time_part part) {
    static const char *const names[GW_TIME_PARTS] = {
        [GW_TIME_FORWARD] = "forward",   [GW_TIME_BACKWARD] = "backward", [GW_TIME_LATENCY] = "latency",
        [GW_TIME_TRANSFER] = "transfer", [GW_TIME_SHARING] = "sharing",   [GW_TIME_QUEUE] = "queue",
        [GW_TIME_REDUCE] = "reduce",     [GW_TIME_CODEC] = "codec",
    };
    return names[part];
}
