/* chrome.h - events as a timeline in Chrome's trace format (a JSON array), which Perfetto and chrome://tracing open.
 *
 * A rank is a process of the timeline, with a lane for its steps, its layers, its waiting, its tensors, and one for
 * each
 * peer it sends to and hears from. Slices of one lane must not overlap there, so a message is drawn from when the one
 * before it was through; its exact times stand among its arguments. Operations, which do overlap, are asynchronous.
 *
 * Every object begins with a comma and a new line, behind the first one (gw_chrome_head): what has been written so far
 * is always an array that lacks only its end (gw_chrome_tail), and both programs open it like that. */
#ifndef GW_TRACE_CHROME_H
#define GW_TRACE_CHROME_H

#include "trace/event.h"

#define GW_CHROME_LINE 2048 /* bytes that one event takes at most, lane names included */

extern const char gw_chrome_head[], gw_chrome_tail[];

typedef struct gw_chrome {
    int rank, world;
    int64_t shift;     /* ns to be added to the rank's times to get the timeline's */
    gw_time *lane_end; /* by lane: when its last slice ended; 0: it has no name yet */
} gw_chrome;

/* False: no memory. */
_Bool gw_chrome_open(gw_chrome *chrome, int rank, int world, int64_t shift);
void gw_chrome_close(gw_chrome *chrome);

/* Each writes at `at` and returns the place behind it. */
char *gw_chrome_rank(gw_chrome *chrome, const char *host, char *at);
/* name and label: of event->name and, of an operation, event->index; "" where there is none. Clean (capture.h). */
char *gw_chrome_event(gw_chrome *chrome, const gw_trace_event *event, const char *name, const char *label, char *at);

#endif
