/* coded_exchange_internal.h - what coded_exchange_open.c (parts, memory) and coded_exchange.c (a step) share. */
#ifndef GW_REDUCER_CODED_EXCHANGE_INTERNAL_H
#define GW_REDUCER_CODED_EXCHANGE_INTERNAL_H

#include "reducer/coded_exchange.h"
#include "reducer/coded_payload.h"

typedef enum gw_coded_exchange_phase {
    PHASE_EXACT, /* watched: parts that left the trusted range, one after the other */
    PHASE_ENCODE,
    PHASE_REDUCED, /* merged: a round has been reduced */
    PHASE_SUM,     /* owned: pieces for the own shares are here */
    PHASE_HALFWAY, /* told to stop here, until gw_coded_exchange_go_on */
    PHASE_RESUMED,
    PHASE_SPREAD, /* what came from all ranks is here */
    PHASE_WATCH,  /* the reports of all members are here */
    PHASE_OVER
} gw_coded_exchange_phase;

/* Merged: where the payload of a part stands in each round. */
typedef struct gw_coded_exchange_place {
    size_t at[GW_CODING_ROUNDS_MAX];
    size_t bytes[GW_CODING_ROUNDS_MAX];
} gw_coded_exchange_place;

/* Of a part. */
typedef struct gw_coded_exchange_watch {
    gw_codec_watch watch;
    gw_codec_report reports[2]; /* of this step and member, by pass */
} gw_coded_exchange_watch;

struct gw_coded_exchange {
    gw_core *core;
    gw_team *team;
    gw_coding coding;
    gw_coded_form form;
    bool halves;
    uint32_t rounds;
    gw_coded_part *parts;
    gw_coded_exchange_place *places; /* of the parts */
    int count, rank, world, lane, ranks;
    const char *arch;
    size_t room; /* bytes of one member's piece of a message */
    size_t out_bytes, in_bytes;
    size_t merged_bytes[GW_CODING_ROUNDS_MAX], exact_count;
    /* Lent while an exchange, or a half of it, is under way. out, in: world parts each; merged: the payloads of all
     * rounds in out, exact tensors in `in`. unit_counts: merged in halves, the units of each rank. */
    uint8_t *out, *in;
    uint64_t *out_lengths, *in_lengths;
    size_t *unit_counts;
    uint8_t *own;  /* payload memory, if nobody lends any */
    uint8_t *kept; /* between two halves: what this rank sends in the second */
    size_t kept_bytes;
    uint64_t kept_length; /* owned: of that */
    gw_coded_exchange_phase phase;
    gw_coded_watched *watched;        /* the caller's; NULL: nothing is watched */
    gw_coded_exchange_watch *watches; /* of the parts */
    float *reports;                   /* of the parts, GW_CODED_REPORT_FLOATS each, summed over the members */
    uint64_t begun;                   /* of watched ones, how often: not every step has an exchange */
    bool samples;                     /* reports are wanted in this step */
    int next;                         /* PHASE_EXACT: the part that comes next */
    gw_op *op, *exact_op;
    const float *const *gradient;
    float *const *result;
    float scale;
    uint32_t label;   /* in a recording */
    gw_time named_in; /* when the recording was opened that error_name is of */
    uint32_t error_name;
    uint8_t urgency;
};

/* What an owner has of a part, run by run; owner -1: what the lane has of it. Begin with *at = 0. */
typedef struct gw_coded_runs {
    gw_stripes of; /* those of the owner */
    gw_stripes lane;
    uint64_t at, to;
    uint64_t skipped; /* of the lane, before the part */
    gw_codec_range range;
    size_t offset; /* of the run in the values of the part */
} gw_coded_runs;

gw_coded_runs gw_coded_runs_of(const gw_coded_exchange *exchange, const gw_coded_part *part, int owner);
bool gw_coded_runs_next(gw_coded_runs *runs);

/* coded_watch.c */
#define GW_CODED_REPORT_FLOATS 8 /* four for each pass */

gw_status gw_coded_watch_open(gw_coded_exchange *exchange, gw_coded_watched *watched, gw_error *error);
void gw_coded_watch_close(gw_coded_exchange *exchange);
/* The part is sent exact in this step, apart from the others. */
bool gw_coded_watch_exact(const gw_coded_exchange *exchange, int part);
/* PHASE_EXACT: starts the all-reduce of the next such part; false: there are no more. */
bool gw_coded_watch_send_exact(gw_coded_exchange *exchange, gw_time now, gw_status *status, gw_error *error);
/* Instead of gw_coding_prepare. */
void gw_coded_watch_prepare(gw_coded_exchange *exchange, int part);
/* Around the encoding of a part in the current pass: its share of the tensor's report. */
gw_codec_report gw_coded_watch_before(const gw_coded_exchange *exchange, int part);
void gw_coded_watch_after(gw_coded_exchange *exchange, int part, const gw_codec_report *before);
/* At the end of a step that is watched: sums up the reports of all members, then judges them. */
gw_status gw_coded_watch_start(gw_coded_exchange *exchange, gw_time now, gw_error *error);
void gw_coded_watch_judge(gw_coded_exchange *exchange);
/* coded_exchange.c: an all-reduce of floats among the members, in place. */
gw_status gw_coded_exchange_sum(gw_coded_exchange *exchange, gw_op **op, float *values, size_t count, gw_time now,
                                gw_error *error);
/* The whole gradient of a part's tensor; NULL: this rank has only what its lane has. */
const float *gw_coded_exchange_gradient(const gw_coded_exchange *exchange, int part);

#endif
