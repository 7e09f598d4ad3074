/* record.c - --timeline and --capture of every command that starts ranks. */
#include <stdlib.h>

#include "cli/cli.h"
#include "trace/trace.h"

void gw_record(const char *timeline, const char *capture) {
    if (timeline) setenv(GW_TIMELINE_VARIABLE, timeline, 1);
    if (capture) setenv(GW_CAPTURE_VARIABLE, capture, 1);
}
