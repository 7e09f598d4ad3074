/* stepper_trace.c - what a stepper tells a recording of its tensors: ready, queued, fused, reduced, applied. */
#include <stdio.h>

#include "base/dtype.h"
#include "engine/stepper_internal.h"
#include "engine/tracing.h"

static gw_trace *tracing(const gw_stepper *s) { return gw_engine_tracing(gw_core_engine(s->config.core)); }

/* The caller gives names when a recording is new to it; the driver records nothing of it before. */
static gw_trace *named(const gw_stepper *s) {
    gw_trace *trace = tracing(s);
    return trace && atomic_load(&s->named_in) == gw_trace_opened(trace) ? trace : NULL;
}

static void give_names(gw_stepper *s, gw_trace *trace) {
    for (int i = 0; i < s->config.count; i++) s->tensors[i].trace_name = gw_trace_name(trace, s->tensors[i].what.name);
    atomic_store(&s->named_in, gw_trace_opened(trace));
}

static uint64_t tensor_bytes(const gw_stepper_tensor *t) { return t->what.count * gw_dtype_bytes(t->what.dtype); }

void gw_stepper_trace_ready(gw_stepper *s, gw_stepper_tensor *t, uint64_t step) {
    gw_trace *trace = tracing(s);
    if (!trace) return;
    if (!named(s)) give_names(s, trace);
    t->ready_at = gw_trace_now(trace);
    gw_trace_span(trace, GW_TRACE_READY, step, t->trace_name, 0, tensor_bytes(t), t->ready_at, t->ready_at);
}

/* A piece is known by its first tensor. */
static uint32_t piece_label(gw_stepper *s, int piece, gw_trace *trace) {
    gw_run *run = &s->runs[piece];
    const gw_piece *p = gw_schedule_piece(s->schedule, piece);
    const gw_span *spans = gw_schedule_spans(s->schedule, piece);
    if (run->labelled_in == gw_trace_opened(trace)) return run->label;
    char text[GW_TEXT_BYTES];
    snprintf(text, sizeof text, p->spans > 1 ? "%.100s and %d more" : "%.100s", s->tensors[spans[0].tensor].what.name,
             p->spans - 1);
    run->labelled_in = gw_trace_opened(trace);
    return run->label = gw_trace_name(trace, text);
}

uint32_t gw_stepper_trace_start(gw_stepper *s, int piece) {
    gw_trace *trace = named(s);
    const gw_piece *p = gw_schedule_piece(s->schedule, piece);
    const gw_span *spans = gw_schedule_spans(s->schedule, piece);
    gw_time now = trace ? gw_trace_now(trace) : 0;
    for (int i = 0; trace && i < p->spans; i++) {
        gw_stepper_tensor *t = &s->tensors[spans[i].tensor];
        uint64_t step = gw_stepper_step(s, p->readied - 1), bytes = spans[i].count * gw_dtype_bytes(t->what.dtype);
        gw_time since = t->ready_at && t->ready_at < now ? t->ready_at : now;
        gw_trace_span(trace, GW_TRACE_QUEUED, step, t->trace_name, (uint32_t)piece, bytes, since, now);
        if (p->spans > 1) gw_trace_span(trace, GW_TRACE_FUSED, step, t->trace_name, (uint32_t)piece, bytes, now, now);
    }
    return trace ? piece_label(s, piece, trace) : 0;
}

gw_time gw_stepper_trace_arrived(const gw_stepper *s, const gw_stepper_tensor *t) {
    gw_trace *trace = named(s);
    gw_time now = trace ? gw_trace_now(trace) : 0;
    if (trace) gw_trace_span(trace, GW_TRACE_REDUCED, t->applying, t->trace_name, 0, tensor_bytes(t), now, now);
    return now;
}

void gw_stepper_trace_applied(const gw_stepper *s, const gw_stepper_tensor *t, gw_time begun) {
    gw_trace *trace = named(s);
    if (trace && begun && s->config.options.update)
        gw_trace_span(trace, GW_TRACE_APPLIED, t->applying, t->trace_name, 0, tensor_bytes(t), begun,
                      gw_trace_now(trace));
}

void gw_stepper_trace_waited(const gw_stepper *s, int tensor, gw_time begun) {
    gw_trace *trace = named(s);
    if (trace)
        gw_trace_span(trace, GW_TRACE_WAITED, gw_stepper_step(s, s->steps), s->tensors[tensor].trace_name, 0, 0, begun,
                      gw_trace_now(trace));
}
