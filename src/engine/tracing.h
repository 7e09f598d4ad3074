/* tracing.h - what the engine tells a recording (trace/trace.h). Called only where there is one:
 *
 *     if (engine->trace) gw_tracing_sent(op, lane, slot);
 */
#ifndef GW_ENGINE_TRACING_H
#define GW_ENGINE_TRACING_H

#include "engine/engine_internal.h"
#include "trace/trace.h"

void gw_tracing_started(gw_op *op);
void gw_tracing_ended(const gw_op *op);
void gw_tracing_waited(gw_trace *trace, const gw_op *op, gw_time begin);

/* A send that is ready: the receiver has no room for it (yet); it is handed to the transport; its memory is free. */
void gw_tracing_refused(gw_op *op, gw_lane *lane);
void gw_tracing_handed(gw_op *op, gw_lane *lane, int slot);
void gw_tracing_sent(const gw_op *op, const gw_lane *lane, int slot);

/* A message that came: begun 0 where its beginning was not seen; complete, and since when it lay aside, 0: not at
 * all. */
void gw_tracing_arrived(const gw_op *op, const gw_lane *lane, const gw_frame *frame, gw_time begun, gw_time complete);

/* A sum of what came: operands of so many bytes were added. */
void gw_tracing_reduced(const gw_op *op, uint64_t bytes, gw_time begun);
void gw_tracing_board(const gw_op *op, const gw_lane *lane, const gw_action *step);

/* A phase of a codec, from begin until now. name: of the tensor or bucket. */
void gw_tracing_phase(gw_trace *trace, gw_trace_kind kind, uint64_t step, uint32_t name, uint64_t bytes, gw_time begin);

#endif
