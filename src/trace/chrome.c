/* chrome.c - see chrome.h. Formats by hand, for speed: this runs beside the training on the same cores. */
#include "trace/chrome.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gradwire.h"

const char gw_chrome_head[] = "[\n"
                              "{\"name\":\"process_labels\",\"ph\":\"M\",\"pid\":0,\"args\":{\"labels\":\"gradwire\"}}";
const char gw_chrome_tail[] = "\n]\n";

enum { TRACK_STEP = 1, TRACK_LAYERS, TRACK_WAITING, TRACK_TENSORS, TRACK_WORK, TRACK_COLL, TRACK_PEERS = 16 };

bool gw_chrome_open(gw_chrome *chrome, int rank, int world, int64_t shift) {
    *chrome = (gw_chrome){.rank = rank, .world = world, .shift = shift};
    chrome->track_end = calloc((size_t)TRACK_PEERS + 2 * (size_t)world, sizeof *chrome->track_end);
    return chrome->track_end != NULL;
}

void gw_chrome_close(gw_chrome *chrome) {
    free(chrome->track_end);
    chrome->track_end = NULL;
}

/* ---- text ---- */

static char *text(char *at, const char *what) {
    size_t length = strlen(what);
    memcpy(at, what, length);
    return at + length;
}

static char *number(char *at, uint64_t value) {
    char digits[20];
    int count = 0;
    do digits[count++] = (char)('0' + value % 10);
    while (value /= 10);
    while (count) *at++ = digits[--count];
    return at;
}

/* Nanoseconds as microseconds with three decimals. */
static char *micro(char *at, uint64_t ns) {
    at = number(at, ns / 1000);
    *at++ = '.';
    for (uint64_t unit = 100, rest = ns % 1000; unit; unit /= 10) *at++ = (char)('0' + rest / unit % 10);
    return at;
}

static uint64_t shown(const gw_chrome *c, gw_time time) {
    int64_t at = (int64_t)time + c->shift;
    return at > 0 ? (uint64_t)at : 0;
}

/* ,{"name":"...","ph":"X","pid":0,"ts":12.345 */
static char *begin(const gw_chrome *c, char *at, const char *name, const char *phase, gw_time time) {
    at = text(at, ",\n{\"name\":\"");
    at = text(at, name);
    at = text(at, "\",\"ph\":\"");
    at = text(at, phase);
    at = text(at, "\",\"pid\":");
    at = number(at, (uint64_t)c->rank);
    at = text(at, ",\"ts\":");
    return micro(at, shown(c, time));
}

static char *field(char *at, const char *key, uint64_t value) {
    at = text(at, ",\"");
    at = text(at, key);
    at = text(at, "\":");
    return number(at, value);
}

static char *word(char *at, const char *key, const char *value) {
    at = text(at, ",\"");
    at = text(at, key);
    at = text(at, "\":\"");
    at = text(at, value);
    *at++ = '"';
    return at;
}

/* ---- tracks ---- */

char *gw_chrome_rank(gw_chrome *c, const char *host, char *at) {
    at += sprintf(at, ",\n{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":%d,\"args\":{\"name\":\"rank %d on %s\"}}",
                  c->rank, c->rank, host);
    return at + sprintf(at, ",\n{\"name\":\"process_sort_index\",\"ph\":\"M\",\"pid\":%d,\"args\":{\"sort_index\":%d}}",
                        c->rank, c->rank);
}

static char *name_track(const gw_chrome *c, char *at, int track) {
    static const char *const names[TRACK_PEERS] = {[TRACK_STEP] = "steps",
                                                   [TRACK_LAYERS] = "layers",
                                                   [TRACK_WAITING] = "waiting",
                                                   [TRACK_TENSORS] = "tensors",
                                                   [TRACK_WORK] = "encode, reduce, decode, apply",
                                                   [TRACK_COLL] = "shared memory"};
    char peer[48];
    int other = track - TRACK_PEERS;
    if (other >= 0) snprintf(peer, sizeof peer, "%s rank %d", other % 2 ? "from" : "to", other / 2);
    at += sprintf(at, ",\n{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"args\":{\"name\":\"%s\"}}",
                  c->rank, track, other >= 0 ? peer : names[track]);
    return at + sprintf(at,
                        ",\n{\"name\":\"thread_sort_index\",\"ph\":\"M\",\"pid\":%d,\"tid\":%d,"
                        "\"args\":{\"sort_index\":%d}}",
                        c->rank, track, track);
}

static int track_of(const gw_chrome *c, const gw_trace_event *e) {
    int peer = e->peer >= 0 && e->peer < c->world ? e->peer : 0;
    switch ((gw_trace_kind)e->kind) {
    case GW_TRACE_STEP: return TRACK_STEP;
    case GW_TRACE_FORWARD:
    case GW_TRACE_BACKWARD: return TRACK_LAYERS;
    case GW_TRACE_WAITED: return TRACK_WAITING;
    case GW_TRACE_ENCODED:
    case GW_TRACE_REDUCED:
    case GW_TRACE_DECODED:
    case GW_TRACE_APPLIED: return TRACK_WORK;
    case GW_TRACE_SENT: return TRACK_PEERS + 2 * peer;
    case GW_TRACE_ARRIVED: return TRACK_PEERS + 2 * peer + 1;
    case GW_TRACE_COLL: return TRACK_COLL;
    default: return TRACK_TENSORS;
    }
}

/* ---- events ---- */

static char *asynchronous(const gw_chrome *c, const gw_trace_event *e, const char *name, const char *label, char *at) {
    char id[64];
    snprintf(id, sizeof id, "%d.%u.%llu.%u", c->rank, e->comm, (unsigned long long)e->number, e->index);
    for (int end = 0; end < 2; end++) {
        at = begin(c, at, name, end ? "e" : "b", end ? e->end : e->begin);
        at = word(at, "cat", gw_trace_kind_name((gw_trace_kind)e->kind));
        at = word(at, "id", id);
        if (!end) {
            at = text(at, ",\"args\":{\"number\":");
            at = field(number(at, e->number), "bytes", e->bytes);
            at = field(at, "communicator", e->comm & ~GW_TRACE_PAIR);
            if (*label) at = word(at, "data", label);
            if (e->channel) at = word(at, "error", gw_status_text((gw_status)e->channel));
            *at++ = '}';
        }
        *at++ = '}';
    }
    return at;
}

static char *value(const gw_chrome *c, const gw_trace_event *e, const char *name, char *at) {
    double number_of;
    memcpy(&number_of, &e->bytes, sizeof number_of);
    if (!(number_of > -1e300 && number_of < 1e300)) number_of = 0; /* JSON has no infinity or NaN */
    at = begin(c, at, name, "C", e->begin);
    return at + sprintf(at, ",\"args\":{\"value\":%.9g}}", number_of);
}

static char *arguments(const gw_chrome *c, const gw_trace_event *e, char *at) {
    bool message = e->kind == GW_TRACE_SENT || e->kind == GW_TRACE_ARRIVED;
    at = word(at, "cat", gw_trace_kind_name((gw_trace_kind)e->kind));
    at = text(at, ",\"args\":{\"number\":");
    at = number(at, e->number);
    if (e->bytes) at = field(at, "bytes", e->bytes);
    if (message) {
        at = field(at, "message", e->index);
        at = text(at, ",\"begin_us\":");
        at = micro(at, shown(c, e->begin));
        at = text(at, ",\"queued_us\":");
        at = micro(at, e->queued);
        if (e->retries) at = field(at, "retries", e->retries);
    }
    return text(at, "}}");
}

char *gw_chrome_event(gw_chrome *c, const gw_trace_event *e, const char *name, const char *label, char *at) {
    if (e->kind == GW_TRACE_OPERATION || e->kind == GW_TRACE_QUEUED) return asynchronous(c, e, name, label, at);
    if (e->kind == GW_TRACE_VALUE) return value(c, e, name, at);
    int track = track_of(c, e);
    gw_time from = e->begin, *last = &c->track_end[track];
    if (!*last) at = name_track(c, at, track);
    if (from < *last) from = *last < e->end ? *last : e->end;
    if (*last < e->end || !*last) *last = e->end ? e->end : 1;
    bool instant = e->kind == GW_TRACE_READY || e->kind == GW_TRACE_FUSED;
    char step[48];
    if (e->kind == GW_TRACE_STEP) snprintf(step, sizeof step, "step %llu", (unsigned long long)e->number);
    at = begin(c, at,
               e->kind == GW_TRACE_STEP ? step
               : *name                  ? name
                                        : gw_trace_kind_name((gw_trace_kind)e->kind),
               instant ? "i" : "X", from);
    at = field(at, "tid", (uint64_t)track);
    if (!instant) {
        at = text(at, ",\"dur\":");
        at = micro(at, e->end - from);
    }
    return arguments(c, e, at);
}
