/* record_options.c - options --timeline and --capture of all commands that start ranks. */
#include <stdlib.h>

#include "cli/cli.h"
#include "trace/trace.h"

void gw_set_recording(const char *timeline, const char *capture) {
    if (timeline) setenv(GW_TIMELINE_VARIABLE, timeline, 1);
    if (capture) setenv(GW_CAPTURE_VARIABLE, capture, 1);
}
