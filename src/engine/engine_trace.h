/* engine_trace.h - the engine's events for a recording (trace/trace.h). Call these only while recording:
 *
 *     if (engine->trace) gw_engine_trace_sent(op, stream, slot);
 */
#ifndef GW_ENGINE_ENGINE_TRACE_H
#define GW_ENGINE_ENGINE_TRACE_H

#include "engine/engine_internal.h"
#include "trace/trace.h"

void gw_engine_trace_started(gw_op *op);
void gw_engine_trace_ended(const gw_op *op);
/* beside: by another thread than the one that makes the training steps. */
void gw_engine_trace_waited(gw_trace *trace, const gw_op *op, gw_time begin, bool beside);

/* A message that is ready to send. refused: it has no grant or credit yet. handed: it is handed to the transport. sent:
 * its buffer is free. */
void gw_engine_trace_refused(gw_op *op, gw_stream_state *stream);
void gw_engine_trace_handed(gw_op *op, gw_stream_state *stream, int slot);
void gw_engine_trace_sent(const gw_op *op, const gw_stream_state *stream, int slot);

/* A message arrived. begun: time of its first byte, 0: not seen. complete: time at which it was complete in the
 * unexpected queue, 0: it was not queued there. */
void gw_engine_trace_arrived(const gw_op *op, const gw_stream_state *stream, const gw_frame *frame, gw_time begun,
                             gw_time complete);

/* A reduction of received data. bytes: size of the operands. */
void gw_engine_trace_reduced(const gw_op *op, uint64_t bytes, gw_time begun);
void gw_engine_trace_coll(const gw_op *op, const gw_stream_state *stream, const gw_action *action);

/* A phase of a codec, from begin until now, in that training step. name: of the tensor or bucket. */
void gw_engine_trace_phase(gw_trace *trace, gw_trace_kind kind, uint64_t step, uint32_t name, uint64_t bytes,
                           gw_time begin);

#endif
