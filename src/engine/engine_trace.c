/* engine_trace.c - see engine_trace.h. */
#include "engine/engine_trace.h"

#include <stdio.h>

#define PAIR_SHIFT 62 /* of GW_PAIR_OP and the direction in an operation's number */

/* "allreduce, ring"; looked up once for each kind. */
static uint32_t kind_name(const gw_op *op) {
    uint32_t *known = &op->engine->trace_names[op->signature.collective][op->signature.builder];
    if (*known) return *known;
    char text[80];
    snprintf(text, sizeof text, "%s, %s", gw_collective_name((gw_collective)op->signature.collective),
             op->spec.builder->technique.name);
    return *known = gw_trace_name(op->engine->trace, text);
}

static uint64_t op_bytes(const gw_op *op) { return (uint64_t)op->spec.count * op->raw; }

static gw_trace_event about(const gw_op *op, gw_trace_kind kind) {
    return (gw_trace_event){.kind = (uint8_t)kind, .peer = -1,
                            .number = GW_OP_NUMBER(op->number),
                            .comm = (op->team->id & ~GW_TRACE_PAIR) | (uint32_t)(op->number >> PAIR_SHIFT) << 30,
                            .name = op->spec.label ? op->spec.label : kind_name(op)};
}

/* Recording may have begun in the middle of an operation. */
static gw_time known_or(gw_time begin, gw_time end) { return begin && begin < end ? begin : end; }

static uint32_t short_time(gw_time time) { return time < UINT32_MAX ? (uint32_t)time : UINT32_MAX; }

void gw_engine_trace_started(gw_op *op) { op->started_at = gw_trace_now(op->engine->trace); }

void gw_engine_trace_ended(const gw_op *op) {
    gw_trace_event event = about(op, GW_TRACE_OPERATION);
    event.end = gw_trace_now(op->engine->trace);
    event.begin = known_or(op->started_at, event.end);
    event.bytes = op_bytes(op);
    event.name = kind_name(op);
    event.index = op->spec.label;
    event.channel = (uint16_t)op->status;
    event.peer = op->pair_peer;
    gw_trace_put(op->engine->trace, &event);
}

void gw_engine_trace_waited(gw_trace *trace, const gw_op *op, gw_time begin, bool beside) {
    gw_trace_event event = about(op, GW_TRACE_WAITED);
    event.begin = begin;
    event.end = gw_trace_now(trace);
    event.channel = beside;
    gw_trace_put(trace, &event);
}

void gw_engine_trace_refused(gw_op *op, gw_stream_state *stream) {
    if (!stream->refused_at) stream->refused_at = gw_trace_now(op->engine->trace);
    if (stream->refusals < UINT8_MAX) stream->refusals++;
}

void gw_engine_trace_handed(gw_op *op, gw_stream_state *stream, int slot) {
    gw_time now = gw_trace_now(op->engine->trace);
    stream->handed_at[slot] = now;
    stream->queued_for[slot] = stream->refused_at ? short_time(now - stream->refused_at) : 0;
    stream->retries[slot] = stream->refusals;
    stream->refused_at = 0;
    stream->refusals = 0;
}

void gw_engine_trace_sent(const gw_op *op, const gw_stream_state *stream, int slot) {
    gw_trace_event event = about(op, GW_TRACE_SENT);
    event.end = gw_trace_now(op->engine->trace);
    event.begin = known_or(stream->handed_at[slot], event.end);
    event.peer = stream->peer;
    event.bytes = stream->packet[slot].frame.length;
    event.index = (uint32_t)stream->packet[slot].frame.index;
    event.channel = (uint16_t)stream->desc.channel;
    event.queued = stream->queued_for[slot];
    event.retries = stream->retries[slot];
    gw_trace_put(op->engine->trace, &event);
}

void gw_engine_trace_arrived(const gw_op *op, const gw_stream_state *stream, const gw_frame *frame, gw_time begun,
                             gw_time complete) {
    gw_trace_event event = about(op, GW_TRACE_ARRIVED);
    gw_time now = gw_trace_now(op->engine->trace);
    event.end = complete ? complete : now;
    event.begin = known_or(begun, event.end);
    event.peer = stream->peer;
    event.bytes = frame->length;
    event.index = (uint32_t)frame->index;
    event.channel = (uint16_t)stream->desc.channel;
    event.queued = short_time(now - event.end);
    gw_trace_put(op->engine->trace, &event);
}

void gw_engine_trace_reduced(const gw_op *op, uint64_t bytes, gw_time begun) {
    enum { WORTH_BYTES = 16 * 1024 }; /* recording shorter reductions is not worth its cost */
    gw_trace_event event = about(op, GW_TRACE_REDUCED);
    if (bytes < WORTH_BYTES) return;
    event.end = gw_trace_now(op->engine->trace);
    event.begin = known_or(begun, event.end);
    event.bytes = bytes;
    gw_trace_put(op->engine->trace, &event);
}

void gw_engine_trace_coll(const gw_op *op, const gw_stream_state *stream, const gw_action *action) {
    gw_trace_event event = about(op, GW_TRACE_COLL);
    event.end = gw_trace_now(op->engine->trace);
    event.begin = known_or(stream->coll_at, event.end);
    event.bytes = (uint64_t)(action->src.count > action->dst.count ? action->src.count : action->dst.count) * op->raw;
    event.index = (uint32_t)stream->done;
    gw_trace_put(op->engine->trace, &event);
}

void gw_engine_trace_phase(gw_trace *trace, gw_trace_kind kind, uint64_t step, uint32_t name, uint64_t bytes,
                           gw_time begin) {
    if (trace) gw_trace_span(trace, kind, step, name, 0, bytes, begin, gw_trace_now(trace));
}
