/* gradwire/trace.h - recording: what a rank did and waited for, written to files (docs/reference/recording.md). */
#ifndef GRADWIRE_TRACE_H
#define GRADWIRE_TRACE_H

#include "gradwire.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Starts recording: operations, messages, waits, the tensors of a reducer, and the layers that gw_trace_layer reports.
 * timeline: a file in Chrome's trace format, which Perfetto opens; capture: a compact file for `gradwire trace`. Either
 * may be NULL. Existing files are replaced. Ranks on the host of rank 0 write to the named file, those of other hosts
 * to FILE.host1, FILE.host2, ... on their own hosts. An event is in the file a tenth of a second after it was recorded,
 * whatever happens to the process.
 *
 * A collective call: it compares clocks. gw_init calls it if GRADWIRE_TIMELINE or GRADWIRE_CAPTURE is set. All
 * communicators of the process are recorded. */
GW_API gw_status gw_trace_start(gw_comm *comm, const char *timeline, const char *capture);
/* Ends the recording of this rank; not a collective call. gw_finalize of the last communicator calls it. No other
 * thread may be inside a call of this library meanwhile. */
GW_API gw_status gw_trace_stop(gw_comm *comm);
/* Whether this process is being recorded; if not, a program need not take times for gw_trace_layer. */
GW_API bool gw_trace_runs(const gw_comm *comm);
/* Records the caller's own work: the forward or backward pass of a layer in that training step, from begin to end, in
 * nanoseconds of CLOCK_MONOTONIC. Does nothing without a recording. Any thread, except while another one is in
 * gw_trace_stop or gw_finalize. */
GW_API void gw_trace_layer(gw_comm *comm, const char *layer, bool backward, uint64_t step, uint64_t begin,
                           uint64_t end);
/* Training steps as the caller counts them: with an optimiser behind the reducer, with several reducers, with none.
 * gw_trace_step_begin: a step begins now; what came since the last one (an evaluation) is in no step. Needed before the
 * first step, and after a pause. gw_trace_step_end: the step of this number ends now, and the next begins. strategy:
 * the line by which it exchanged gradients, as from gw_reducer_strategy; NULL: the communicator's. From the first of
 * these calls on reducers record no steps; without them a reducer records one from each gw_reducer_end to the next.
 * Both do nothing without a recording. From one thread: waits of other threads count only where no layer computes. */
GW_API void gw_trace_step_begin(gw_comm *comm);
GW_API void gw_trace_step_end(gw_comm *comm, uint64_t step, const char *strategy);

#ifdef __cplusplus
}
#endif
#endif
