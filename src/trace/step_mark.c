/* step_mark.c - see step_mark.h. */
#include "trace/step_mark.h"

bool gw_step_mark_open(const gw_step_mark *mark, const gw_trace *trace) {
    return trace && mark->opened == gw_trace_opened(trace);
}

void gw_step_mark_begin(gw_step_mark *mark, const gw_trace *trace) {
    if (trace) *mark = (gw_step_mark){.opened = gw_trace_opened(trace), .began = gw_trace_now(trace), .first = true};
}

void gw_step_mark_end(gw_step_mark *mark, gw_trace *trace, uint64_t step, const char *strategy) {
    if (!trace) return;
    gw_time now = gw_trace_now(trace);
    if (gw_step_mark_open(mark, trace))
        gw_trace_span(trace, GW_TRACE_STEP, step, gw_trace_name(trace, strategy), mark->first, 0, mark->began, now);
    *mark = (gw_step_mark){.opened = gw_trace_opened(trace), .began = now};
}
