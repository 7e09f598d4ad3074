/* recording.h - the recording (trace/trace.h) of a process that has joined a job. */
#ifndef GW_RUNTIME_RECORDING_H
#define GW_RUNTIME_RECORDING_H

#include "gradwire/trace.h"
#include "trace/step_mark.h"

struct gw_context;

/* The current recording, for the thread that uses the communicator; NULL: none. */
gw_trace *gw_comm_trace(const gw_comm *comm);
/* Whether the caller marks its steps (gw_trace_step_begin) in the current recording. */
bool gw_comm_marks_steps(const gw_comm *comm);
/* True if the environment asks for a recording; starts it. */
bool gw_trace_wanted(void);
gw_status gw_trace_wanted_start(gw_comm *comm);
/* Ends the current recording, if any. */
void gw_context_end_trace(struct gw_context *context);

#endif
