/* tracing.c - see tracing.h. */
#include "engine/tracing.h"

#include <stdio.h>

#define PAIR_BITS 62 /* of an operation's number: those above say that it is between two, and its direction */

/* "allreduce, ring"; looked up once for each. */
static uint32_t kind_name(const gw_op *op) {
    uint32_t *known = &op->engine->trace_names[op->signature.collective][op->signature.builder];
    if (*known) return *known;
    char text[80];
    snprintf(text, sizeof text, "%s, %s", gw_collective_name((gw_collective)op->signature.collective),
             gw_plan_builders[op->signature.builder]->name);
    return *known = gw_trace_name(op->engine->trace, text);
}

static uint64_t op_bytes(const gw_op *op) { return (uint64_t)op->spec.count * op->raw; }

static gw_trace_event about(const gw_op *op, gw_trace_kind kind) {
    return (gw_trace_event){.kind = (uint8_t)kind, .peer = -1,
                            .number = op->number & ((UINT64_C(1) << PAIR_BITS) - 1),
                            .comm = (op->team->id & ~GW_TRACE_PAIR) | (uint32_t)(op->number >> PAIR_BITS) << 30,
                            .name = op->spec.label ? op->spec.label : kind_name(op)};
}

/* Recording may have begun in the middle of an operation. */
static gw_time known_or(gw_time begin, gw_time end) { return begin && begin < end ? begin : end; }

static uint32_t short_time(gw_time time) { return time < UINT32_MAX ? (uint32_t)time : UINT32_MAX; }

void gw_tracing_started(gw_op *op) { op->started_at = gw_trace_now(op->engine->trace); }

void gw_tracing_ended(const gw_op *op) {
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

void gw_tracing_waited(gw_trace *trace, const gw_op *op, gw_time begin) {
    gw_trace_event event = about(op, GW_TRACE_WAITED);
    event.begin = begin;
    event.end = gw_trace_now(trace);
    gw_trace_put(trace, &event);
}

void gw_tracing_refused(gw_op *op, gw_lane *lane) {
    if (!lane->refused_at) lane->refused_at = gw_trace_now(op->engine->trace);
    if (lane->refusals < UINT8_MAX) lane->refusals++;
}

void gw_tracing_handed(gw_op *op, gw_lane *lane, int slot) {
    gw_time now = gw_trace_now(op->engine->trace);
    lane->handed_at[slot] = now;
    lane->queued_for[slot] = lane->refused_at ? short_time(now - lane->refused_at) : 0;
    lane->retries[slot] = lane->refusals;
    lane->refused_at = 0;
    lane->refusals = 0;
}

void gw_tracing_sent(const gw_op *op, const gw_lane *lane, int slot) {
    gw_trace_event event = about(op, GW_TRACE_SENT);
    event.end = gw_trace_now(op->engine->trace);
    event.begin = known_or(lane->handed_at[slot], event.end);
    event.peer = lane->peer;
    event.bytes = lane->packet[slot].frame.length;
    event.index = (uint32_t)lane->packet[slot].frame.index;
    event.channel = (uint16_t)lane->stream.channel;
    event.queued = lane->queued_for[slot];
    event.retries = lane->retries[slot];
    gw_trace_put(op->engine->trace, &event);
}

void gw_tracing_arrived(const gw_op *op, const gw_lane *lane, const gw_frame *frame, gw_time begun, gw_time complete) {
    gw_trace_event event = about(op, GW_TRACE_ARRIVED);
    gw_time now = gw_trace_now(op->engine->trace);
    event.end = complete ? complete : now;
    event.begin = known_or(begun, event.end);
    event.peer = lane->peer;
    event.bytes = frame->length;
    event.index = (uint32_t)frame->index;
    event.channel = (uint16_t)lane->stream.channel;
    event.queued = short_time(now - event.end);
    gw_trace_put(op->engine->trace, &event);
}

void gw_tracing_reduced(const gw_op *op, uint64_t bytes, gw_time begun) {
    enum { WORTH_BYTES = 16 * 1024 }; /* shorter sums would cost more to record than they tell */
    gw_trace_event event = about(op, GW_TRACE_REDUCED);
    if (bytes < WORTH_BYTES) return;
    event.end = gw_trace_now(op->engine->trace);
    event.begin = known_or(begun, event.end);
    event.bytes = bytes;
    gw_trace_put(op->engine->trace, &event);
}

void gw_tracing_board(const gw_op *op, const gw_lane *lane, const gw_action *step) {
    gw_trace_event event = about(op, GW_TRACE_BOARD);
    event.end = gw_trace_now(op->engine->trace);
    event.begin = known_or(lane->board_at, event.end);
    event.bytes = (uint64_t)(step->src.count > step->dst.count ? step->src.count : step->dst.count) * op->raw;
    event.index = (uint32_t)lane->done;
    gw_trace_put(op->engine->trace, &event);
}

void gw_tracing_phase(gw_trace *trace, gw_trace_kind kind, uint64_t step, uint32_t name, uint64_t bytes,
                      gw_time begin) {
    if (trace) gw_trace_span(trace, kind, step, name, 0, bytes, begin, gw_trace_now(trace));
}
