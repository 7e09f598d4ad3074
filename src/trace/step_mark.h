/* step_mark.h - where a training step of a recording begins and ends.
 *
 * A step lasts from the end of the one before it to its own end, by the clock, so everything between two steps belongs
 * to the later one: loading data, waiting, an optimiser. The first step of a recording, and the first after a pause,
 * has none before it: it lasts from gw_step_mark_begin, and its event says so (index 1). */
#ifndef GW_TRACE_STEP_MARK_H
#define GW_TRACE_STEP_MARK_H

#include "trace/trace.h"

typedef struct gw_step_mark {
    gw_time opened; /* of the recording that the mark belongs to; 0: no step is open */
    gw_time began;  /* the step in progress */
    bool first;     /* no step ended where it began */
} gw_step_mark;

/* Whether a step is open in this recording; false for NULL. */
bool gw_step_mark_open(const gw_step_mark *mark, const gw_trace *trace);
/* A step begins now; what came since the last one is in no step. NULL is fine. */
void gw_step_mark_begin(gw_step_mark *mark, const gw_trace *trace);
/* The open step ends now, and the next begins. strategy: the line by which it exchanged gradients. NULL is fine for
 * trace. */
void gw_step_mark_end(gw_step_mark *mark, gw_trace *trace, uint64_t step, const char *strategy);

#endif
