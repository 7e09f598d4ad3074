/* writer.h - writes one rank's events to the files of a recording. For trace.c; one thread. */
#ifndef GW_TRACE_WRITER_H
#define GW_TRACE_WRITER_H

#include "trace/chrome.h"
#include "trace/trace.h"

#define GW_WRITER_BYTES (64 * 1024)

typedef struct gw_trace_writer {
    int rank;
    int timeline, capture; /* descriptors; -1: not wanted, or writing failed */
    gw_chrome chrome;
    char *lines; /* for the timeline; GW_WRITER_BYTES, like block */
    size_t lines_used;
    uint8_t *block;
    size_t block_used; /* payload so far */
    gw_time before;    /* begin of the last event in the block */
} gw_trace_writer;

gw_status gw_trace_writer_open(gw_trace_writer *writer, const gw_trace_config *config, gw_error *error);
/* Marks the recording as ended in order. */
void gw_trace_writer_close(gw_trace_writer *writer, uint64_t dropped);

/* Writes a name; call it before the first event that uses it. */
void gw_trace_writer_name(gw_trace_writer *writer, uint32_t number, const char *text);
void gw_trace_writer_event(gw_trace_writer *writer, const gw_trace_event *event, const char *name, const char *label);
void gw_trace_writer_dropped(gw_trace_writer *writer, uint64_t dropped);
void gw_trace_writer_flush(gw_trace_writer *writer);

#endif
