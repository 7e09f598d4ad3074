/* chrome.h - events as a timeline in Chrome's trace format (a JSON array), which Perfetto and chrome://tracing open.
 *
 * A rank is a process of the timeline. It has tracks for its steps, layers, waits and tensors, and two for each peer:
 * sends and receives. Slices of one track must not overlap, so a message is drawn from the end of the previous one; its
 * exact times are in its arguments. Operations do overlap and are asynchronous events.
 *
 * Every object but the first (gw_chrome_head) begins with a comma and a newline. So the file is always an array that
 * lacks only its end (gw_chrome_tail), and both programs open such a file. */
#ifndef GW_TRACE_CHROME_H
#define GW_TRACE_CHROME_H

#include "trace/event.h"

#define GW_CHROME_LINE 2048 /* largest size of one event, with track names */

extern const char gw_chrome_head[], gw_chrome_tail[];

typedef struct gw_chrome {
    int rank, world;
    int64_t shift;      /* ns; timeline time = rank's time + shift */
    gw_time *track_end; /* by track: end of its last slice; 0: not named yet */
} gw_chrome;

/* False: no memory. */
_Bool gw_chrome_open(gw_chrome *chrome, int rank, int world, int64_t shift);
void gw_chrome_close(gw_chrome *chrome);

/* Each writes at `at` and returns the end. */
char *gw_chrome_rank(gw_chrome *chrome, const char *host, char *at);
/* name: text of event->name; label: text of event->index of an operation; "": none. Both are clean (capture.h). */
char *gw_chrome_event(gw_chrome *chrome, const gw_trace_event *event, const char *name, const char *label, char *at);

#endif
