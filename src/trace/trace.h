/* trace.h - recording: a ring buffer of a rank's events, and a thread that writes them to files.
 *
 * Callers hold a gw_trace pointer; NULL: nothing is recorded, at the cost of one predictable branch. While recording,
 * an event costs a clock reading and a cache line; nothing is allocated and nothing blocks. If the writer cannot keep
 * up, events are dropped, and the file says how many.
 *
 * Two formats, either or both: a timeline (chrome.h) for people, a capture (capture.h) for `gradwire trace`. All ranks
 * of a host write to the same two files. */
#ifndef GW_TRACE_H
#define GW_TRACE_H

#include <stddef.h>

#include "base/status.h"
#include "trace/capture.h"
#include "trace/event.h"

#define GW_TIMELINE_VARIABLE "GRADWIRE_TIMELINE"
#define GW_CAPTURE_VARIABLE "GRADWIRE_CAPTURE"

typedef struct gw_trace gw_trace;

typedef struct gw_trace_config {
    int rank;
    gw_capture_rank about;
    const char *timeline, *capture; /* files made by gw_trace_create; NULL: not wanted. Used only by gw_trace_open */
    gw_time (*clock)(void *ctx);    /* of the driver; NULL: the monotonic clock */
    void *clock_ctx;
    size_t places; /* capacity of the ring in events, a power of two; 0: 65,536 (4 MiB) */
} gw_trace_config;

/* Creates or replaces the files, before the ranks of the host open them. Either may be NULL. */
gw_status gw_trace_create(const char *timeline, const char *capture, gw_error *error);
gw_status gw_trace_open(gw_trace **trace, const gw_trace_config *config, gw_error *error);
/* Writes the remaining events. The last rank of the host to close completes the timeline. NULL is fine. */
void gw_trace_close(gw_trace *trace);

/* The number of a name; equal texts have equal numbers. For set-up: takes a lock and may allocate. Keeps at most 255
 * bytes. 0 if trace is NULL or there is no memory. Any thread. */
uint32_t gw_trace_name(gw_trace *trace, const char *text);
gw_time gw_trace_now(const gw_trace *trace);
/* When it was opened. Differs between the recordings of a process, so it shows whether cached names are still valid. */
gw_time gw_trace_opened(const gw_trace *trace);

/* Any thread may record; trace is not NULL. */
void gw_trace_put(gw_trace *trace, const gw_trace_event *event);

/* Records an event of a training step. name: the tensor or layer; part: number of the bucket or slice, 0: none. An
 * instant has begin == end. NULL is fine: nothing is recorded. */
void gw_trace_span(gw_trace *trace, gw_trace_kind kind, uint64_t step, uint32_t name, uint32_t part, uint64_t bytes,
                   gw_time begin, gw_time end);
/* Records a point of a curve: the loss, the error of a codec. NULL is fine. */
void gw_trace_value(gw_trace *trace, uint64_t step, uint32_t name, double value);

#endif
