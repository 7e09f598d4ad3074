/* path.c - see path.h. */
#include "sim/path.h"

const char *gw_path_part_name(gw_path_part part) {
    static const char *const names[GW_PATH_PARTS] = {
        [GW_PATH_FORWARD] = "forward",   [GW_PATH_BACKWARD] = "backward", [GW_PATH_LATENCY] = "latency",
        [GW_PATH_TRANSFER] = "transfer", [GW_PATH_SHARING] = "sharing",   [GW_PATH_QUEUE] = "queue",
        [GW_PATH_REDUCE] = "reduce",     [GW_PATH_CODEC] = "codec",
    };
    return names[part];
}
