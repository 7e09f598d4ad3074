/* chrome.c - see chrome.h. Formatted by hand: this runs beside a training on the same cores. */
#include "trace/chrome.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gradwire.h"

const char gw_chrome_head[] = "[\n"
                              "{\"name\":\"process_labels\",\"ph\":\"M\",\"pid\":0,\"args\":{\"labels\":\"gradwire\"}}";
const char gw_chrome_tail[] = "\n]\n";

enum { LANE_STEP = 1, LANE_LAYERS, LANE_WAITING, LANE_TENSORS, LANE_WORK, LANE_BOARD, LANE_PEERS = 16 };

bool gw_chrome_open(gw_chrome *chrome, int rank, int world, int64_t shift) {
    *chrome = (gw_chrome){.rank = rank, .world = world, .shift = shift};
    chrome->lane_end = calloc((size_t)LANE_PEERS + 2 * (size_t)world, sizeof *chrome->lane_end);
    return chrome->lane_end != NULL;
}

void gw_chrome_close(gw_chrome *chrome) {
    free(chrome->lane_end);
    chrome->lane_end = NULL;
}

/* ---- letters ---- */

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

/* Nanoseconds as microseconds with three places. */
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

/* ---- lanes ---- */

char *gw_chrome_rank(gw_chrome *c, const char *host, char *at) {
    at += sprintf(at, ",\n{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":%d,\"args\":{\"name\":\"rank %d on %s\"}}",
                  c->rank, c->rank, host);
    return at + sprintf(at, ",\n{\"name\":\"process_sort_index\",\"ph\":\"M\",\"pid\":%d,\"args\":{\"sort_index\":%d}}",
                        c->rank, c->rank);
}

static char *name_lane(const gw_chrome *c, char *at, int lane) {
    static const char *const names[LANE_PEERS] = {[LANE_STEP] = "steps", [LANE_LAYERS] = "layers",
                                                  [LANE_WAITING] = "waiting", [LANE_TENSORS] = "tensors",
                                                  [LANE_WORK] = "encode, reduce, decode, apply",
                                                  [LANE_BOARD] = "shared memory"};
    char peer[48];
    int other = lane - LANE_PEERS;
    if (other >= 0) snprintf(peer, sizeof peer, "%s rank %d", other % 2 ? "from" : "to", other / 2);
    at += sprintf(at, ",\n{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"args\":{\"name\":\"%s\"}}",
                  c->rank, lane, other >= 0 ? peer : names[lane]);
    return at + sprintf(at, ",\n{\"name\":\"thread_sort_index\",\"ph\":\"M\",\"pid\":%d,\"tid\":%d,"
                            "\"args\":{\"sort_index\":%d}}", c->rank, lane, lane);
}

static int lane_of(const gw_chrome *c, const gw_trace_event *e) {
    int peer = e->peer >= 0 && e->peer < c->world ? e->peer : 0;
    switch ((gw_trace_kind)e->kind) {
    case GW_TRACE_STEP: return LANE_STEP;
    case GW_TRACE_FORWARD:
    case GW_TRACE_BACKWARD: return LANE_LAYERS;
    case GW_TRACE_WAITED: return LANE_WAITING;
    case GW_TRACE_ENCODED:
    case GW_TRACE_REDUCED:
    case GW_TRACE_DECODED:
    case GW_TRACE_APPLIED: return LANE_WORK;
    case GW_TRACE_SENT: return LANE_PEERS + 2 * peer;
    case GW_TRACE_ARRIVED: return LANE_PEERS + 2 * peer + 1;
    case GW_TRACE_BOARD: return LANE_BOARD;
    default: return LANE_TENSORS;
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
            if (*label) at = word(at, "carries", label);
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
    if (!(number_of > -1e300 && number_of < 1e300)) number_of = 0; /* JSON knows no other numbers */
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
    int lane = lane_of(c, e);
    gw_time from = e->begin, *last = &c->lane_end[lane];
    if (!*last) at = name_lane(c, at, lane);
    if (from < *last) from = *last < e->end ? *last : e->end;
    if (*last < e->end || !*last) *last = e->end ? e->end : 1;
    bool instant = e->kind == GW_TRACE_READY || e->kind == GW_TRACE_FUSED;
    char step[48];
    if (e->kind == GW_TRACE_STEP) snprintf(step, sizeof step, "step %llu", (unsigned long long)e->number);
    at = begin(c, at, e->kind == GW_TRACE_STEP ? step : *name ? name : gw_trace_kind_name((gw_trace_kind)e->kind),
               instant ? "i" : "X", from);
    at = field(at, "tid", (uint64_t)lane);
    if (!instant) {
        at = text(at, ",\"dur\":");
        at = micro(at, e->end - from);
    }
    return arguments(c, e, at);
}
