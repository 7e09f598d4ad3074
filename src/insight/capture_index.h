/* capture_index.h - a capture (trace/capture.h) in memory, indexed for analysis. */
#ifndef GW_INSIGHT_CAPTURE_INDEX_H
#define GW_INSIGHT_CAPTURE_INDEX_H

#include <stdio.h>

#include "base/status.h"
#include "trace/capture.h"

#define GW_INSIGHT_RANKS_MAX 4096

typedef struct gw_insight_event {
    gw_trace_event is; /* times: ns since the recording began, by the first rank's clock; names: common to all ranks */
    int32_t rank;      /* the rank that recorded it */
} gw_insight_event;

typedef struct gw_insight_rank {
    bool introduced; /* it has a RANK block */
    gw_capture_rank about;
    uint64_t dropped; /* events that its ring had no room for */
    bool ended;       /* its recording ended in order */
} gw_insight_rank;

typedef struct gw_insight {
    gw_insight_rank *ranks;
    int rank_count; /* the highest rank found, plus one */
    char **names;   /* names[0] is "" */
    uint32_t name_count;
    gw_insight_event *events; /* by rank, then kind, then begin */
    size_t event_count;
    size_t *first;          /* rank_count * GW_TRACE_KINDS + 1 entries: index of a rank's first event of a kind */
    gw_time *reach;         /* by event: latest end of this and earlier events of its rank and kind */
    gw_time end;            /* of the last event */
    uint64_t damaged_bytes; /* skipped: not readable */
    uint64_t cut_blocks;    /* truncated blocks */
    uint64_t odd_events;    /* left out: impossible times */
    int other_runs;         /* files of other runs, left out */
    char other_run[256];    /* name of the first of them */
} gw_insight;

/* Reads FILE, FILE.host1, FILE.host2, ... Skips and counts damaged parts, and files of other runs than FILE: the ranks
 * of a run have its origin and wall clock from its first rank. */
gw_status gw_insight_load(const char *path, gw_insight **insight, gw_error *error);
/* The same from memory; name is for error messages. */
gw_status gw_insight_parse(const uint8_t *bytes, size_t size, const char *name, gw_insight **insight, gw_error *error);
void gw_insight_close(gw_insight *insight); /* NULL is fine */

/* A sentence about missing data; false: nothing is missing. */
bool gw_insight_warning(const gw_insight *insight, char text[GW_ERROR_TEXT_BYTES]);

/* Ranks of the job, recorded or not; 0: unknown. */
int gw_insight_world(const gw_insight *insight);
/* Ranks that introduced themselves, and the hosts that they ran on. */
int gw_insight_ranks(const gw_insight *insight);
int gw_insight_hosts(const gw_insight *insight);

/* A rank's events of a kind, by begin. */
const gw_insight_event *gw_insight_of(const gw_insight *insight, int rank, gw_trace_kind kind, size_t *count);
/* The same, without the leading events that ended by `time`. */
const gw_insight_event *gw_insight_from(const gw_insight *insight, int rank, gw_trace_kind kind, gw_time time,
                                        size_t *count);
const char *gw_insight_name(const gw_insight *insight, uint32_t name);
/* The name to show for an event: for an operation its tensor's name, if known; otherwise the event's own name. */
const char *gw_insight_about(const gw_insight *insight, const gw_trace_event *event);

#endif
