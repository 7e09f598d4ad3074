/* coded_exchange_internal.h - what coded_exchange_open.c (parts, memory) and coded_exchange.c (a step) share. */
#ifndef GW_REDUCER_CODED_EXCHANGE_INTERNAL_H
#define GW_REDUCER_CODED_EXCHANGE_INTERNAL_H

#include "reducer/coded_exchange.h"
#include "reducer/coded_payload.h"

typedef enum gw_coded_exchange_phase {
    PHASE_ENCODE,
    PHASE_REDUCED, /* merged: a round has been reduced */
    PHASE_SUM,     /* owned: pieces for the own shares are here */
    PHASE_HALFWAY, /* told to stop here, until gw_coded_exchange_go_on */
    PHASE_RESUMED,
    PHASE_SPREAD, /* what came from all ranks is here */
    PHASE_OVER
} gw_coded_exchange_phase;

/* Merged: where the payload of a part stands in each round. */
typedef struct gw_coded_exchange_place {
    size_t at[GW_CODING_ROUNDS_MAX];
    size_t bytes[GW_CODING_ROUNDS_MAX];
} gw_coded_exchange_place;

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

#endif
