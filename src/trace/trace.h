/* trace.h - recording: events of a rank into a ring buffer, and a thread that writes them to files.
 *
 * Whoever records holds a gw_trace pointer, or NULL where nothing is recorded: off costs one predictable branch. On, an
 * event costs a clock reading and a cache line; nothing is allocated and nobody waits. When the writer does not keep
 * up, events are dropped and the file says how many.
 *
 * Two forms, either or both: a timeline (chrome.h) for a person, a capture (capture.h) for `gradwire trace`. All ranks
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
    const char *timeline, *capture; /* files that gw_trace_create has made; NULL: not wanted. Copied */
    gw_time (*clock)(void *ctx);    /* of the driver; NULL: the monotonic clock */
    void *clock_ctx;
    size_t places;                  /* events that fit in the ring, a power of two; 0: 65,536 (4 MiB) */
} gw_trace_config;

/* Makes the files anew, before the ranks of the host open them. Either may be NULL. */
gw_status gw_trace_create(const char *timeline, const char *capture, gw_error *error);
gw_status gw_trace_open(gw_trace **trace, const gw_trace_config *config, gw_error *error);
/* Writes what has been recorded. The last rank of the host to do so completes the timeline. NULL is fine. */
void gw_trace_close(gw_trace *trace);

/* A number for a name, the same for the same text; for set-up: it takes a lock and may allocate. At most 255 bytes of
 * it are kept. 0 where trace is NULL or there is no memory. Any thread. */
uint32_t gw_trace_name(gw_trace *trace, const char *text);
gw_time gw_trace_now(const gw_trace *trace);
/* When it was opened: no two recordings of a process have the same, so it tells whether names are of this one. */
gw_time gw_trace_opened(const gw_trace *trace);

/* Any thread may record; trace is not NULL. */
void gw_trace_put(gw_trace *trace, const gw_trace_event *event);

/* What belongs to a training step: `name` is the tensor or layer, `piece` the number of a bucket or slice, 0 if none. A
 * moment has begin == end. NULL is fine: nothing is recorded. */
void gw_trace_span(gw_trace *trace, gw_trace_kind kind, uint64_t step, uint32_t name, uint32_t piece, uint64_t bytes,
                   gw_time begin, gw_time end);
/* A curve: the loss, the error of a codec. NULL is fine. */
void gw_trace_value(gw_trace *trace, uint64_t step, uint32_t name, double value);

#endif
