/* step_trace.c - events of tensors in a recording: ready, queued, fused, reduced, applied, waited for. */
#include <stdio.h>

#include "base/dtype.h"
#include "engine/engine_trace.h"
#include "reducer/step_engine_internal.h"

static gw_trace *tracing(const gw_step_engine *s) { return gw_engine_tracing(gw_core_engine(s->config.core)); }

/* The caller's thread names the tensors in a new recording; the driver records nothing before that. */
static gw_trace *named(const gw_step_engine *s) {
    gw_trace *trace = tracing(s);
    return trace && atomic_load(&s->named_in) == gw_trace_opened(trace) ? trace : NULL;
}

static void give_names(gw_step_engine *s, gw_trace *trace) {
    for (int i = 0; i < s->config.count; i++) s->tensors[i].trace_name = gw_trace_name(trace, s->tensors[i].what.name);
    atomic_store(&s->named_in, gw_trace_opened(trace));
}

static uint64_t tensor_bytes(const gw_step_engine_tensor *t) { return t->what.count * gw_dtype_bytes(t->what.dtype); }

void gw_step_engine_trace_ready(gw_step_engine *s, gw_step_engine_tensor *t, uint64_t step) {
    gw_trace *trace = tracing(s);
    if (!trace) return;
    if (!named(s)) give_names(s, trace);
    t->ready_at = gw_trace_now(trace);
    gw_trace_span(trace, GW_TRACE_READY, step, t->trace_name, 0, tensor_bytes(t), t->ready_at, t->ready_at);
}

/* A bucket is named after its first tensor; where its route has several hops, each is named too. */
static void name_hops(gw_step_engine *s, int bucket, gw_trace *trace) {
    gw_transfer *transfer = &s->transfers[bucket];
    const gw_bucket *p = gw_schedule_bucket(s->schedule, bucket);
    const gw_tensor_range *ranges = gw_schedule_ranges(s->schedule, bucket);
    const gw_route *route = &transfer->route;
    if (transfer->labelled_in == gw_trace_opened(trace)) return;
    char name[GW_TEXT_BYTES / 2], hop[80], text[GW_TEXT_BYTES];
    snprintf(name, sizeof name, p->ranges > 1 ? "%.100s and %d more" : "%.100s", s->tensors[ranges[0].tensor].what.name,
             p->ranges - 1);
    for (int h = 0; h < route->count; h++) {
        snprintf(text, sizeof text, "%s: %s", name, gw_hop_text(route, h, hop, sizeof hop));
        transfer->labels[h] = gw_trace_name(trace, route->count > 1 ? text : name);
    }
    transfer->labelled_in = gw_trace_opened(trace);
}

void gw_step_engine_trace_start(gw_step_engine *s, int bucket) {
    gw_trace *trace = named(s);
    const gw_bucket *p = gw_schedule_bucket(s->schedule, bucket);
    const gw_tensor_range *ranges = gw_schedule_ranges(s->schedule, bucket);
    gw_time now = trace ? gw_trace_now(trace) : 0;
    for (int i = 0; trace && i < p->ranges; i++) {
        gw_step_engine_tensor *t = &s->tensors[ranges[i].tensor];
        uint64_t step = gw_step_engine_step(s, p->readied - 1), bytes = ranges[i].count * gw_dtype_bytes(t->what.dtype);
        gw_time since = t->ready_at && t->ready_at < now ? t->ready_at : now;
        gw_trace_span(trace, GW_TRACE_QUEUED, step, t->trace_name, (uint32_t)bucket, bytes, since, now);
        if (p->ranges > 1) gw_trace_span(trace, GW_TRACE_FUSED, step, t->trace_name, (uint32_t)bucket, bytes, now, now);
    }
    if (trace) name_hops(s, bucket, trace);
}

gw_time gw_step_engine_trace_arrived(const gw_step_engine *s, const gw_step_engine_tensor *t) {
    gw_trace *trace = named(s);
    gw_time now = trace ? gw_trace_now(trace) : 0;
    if (trace) gw_trace_span(trace, GW_TRACE_REDUCED, t->applying, t->trace_name, 0, tensor_bytes(t), now, now);
    return now;
}

void gw_step_engine_trace_applied(const gw_step_engine *s, const gw_step_engine_tensor *t, gw_time begun) {
    gw_trace *trace = named(s);
    if (trace && begun && s->config.options.update)
        gw_trace_span(trace, GW_TRACE_APPLIED, t->applying, t->trace_name, 0, tensor_bytes(t), begun,
                      gw_trace_now(trace));
}

void gw_step_engine_trace_waited(const gw_step_engine *s, int tensor, gw_time begun) {
    gw_trace *trace = named(s);
    if (trace)
        gw_trace_span(trace, GW_TRACE_WAITED, gw_step_engine_step(s, s->steps), s->tensors[tensor].trace_name, 0, 0,
                      begun, gw_trace_now(trace));
}
