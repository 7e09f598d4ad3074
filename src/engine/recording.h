/* recording.h - the recording (trace/trace.h) of a process that has joined a job. */
#ifndef GW_ENGINE_RECORDING_H
#define GW_ENGINE_RECORDING_H

#include "gradwire.h"
#include "trace/trace.h"

struct gw_node;

/* The one under way, for the thread that uses the communicator; NULL: none. */
gw_trace *gw_comm_trace(const gw_comm *comm);
/* The environment asks for one; begins it. */
bool gw_trace_wanted(void);
gw_status gw_trace_wanted_start(gw_comm *comm);
/* Ends the one under way, if there is one. */
void gw_node_end_trace(struct gw_node *node);

#endif
