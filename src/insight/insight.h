/* insight.h - a capture (trace/capture.h) in memory, for those who ask about it. */
#ifndef GW_INSIGHT_H
#define GW_INSIGHT_H

#include <stdio.h>

#include "base/status.h"
#include "trace/capture.h"

#define GW_INSIGHT_RANKS_MAX 4096

typedef struct gw_insight_event {
    gw_trace_event is; /* begin and end: ns of the first rank's clock since recording began; names are common to all */
    int32_t rank;      /* that recorded it */
} gw_insight_event;

typedef struct gw_insight_rank {
    bool introduced; /* its RANK block was there */
    gw_capture_rank about;
    uint64_t dropped; /* events that it could not keep */
    bool ended;       /* in order */
} gw_insight_rank;

typedef struct gw_insight {
    gw_insight_rank *ranks;
    int rank_count; /* the highest rank that wrote anything, plus one */
    char **names;   /* names[0] is "" */
    uint32_t name_count;
    gw_insight_event *events; /* by rank, then kind, then begin */
    size_t event_count;
    size_t *first;  /* rank_count * GW_TRACE_KINDS + 1 entries: where a rank's events of a kind begin */
    gw_time *reach; /* by event: the latest end of it and those before it, of its rank and kind */
    gw_time end;    /* of the last event */
    uint64_t damaged_bytes; /* skipped, because they could not be read */
    uint64_t cut_blocks;    /* blocks of which only the beginning is there */
    uint64_t odd_events;    /* left out: their times cannot be */
} gw_insight;

/* Reads FILE and, beside it, FILE.host1, FILE.host2, ... What is damaged is left out, and counted. */
gw_status gw_insight_load(const char *path, gw_insight **insight, gw_error *error);
/* The same of bytes in memory; name is for the error. */
gw_status gw_insight_parse(const uint8_t *bytes, size_t size, const char *name, gw_insight **insight, gw_error *error);
void gw_insight_close(gw_insight *insight); /* NULL is fine */

/* One sentence about what is missing; false: nothing is. */
bool gw_insight_warning(const gw_insight *insight, char text[GW_ERROR_TEXT_BYTES]);

/* A rank's events of a kind, in the order of their beginning. */
const gw_insight_event *gw_insight_of(const gw_insight *insight, int rank, gw_trace_kind kind, size_t *count);
/* The same, without those at the beginning that were over by then. */
const gw_insight_event *gw_insight_from(const gw_insight *insight, int rank, gw_trace_kind kind, gw_time time,
                                        size_t *count);
const char *gw_insight_name(const gw_insight *insight, uint32_t name);
/* What an event is about: its own name, or that of what it carries. */
const char *gw_insight_about(const gw_insight *insight, const gw_trace_event *event);

#endif
