/* coded_exchange_internal.h - what coded_exchange_open.c (forms, parts, memory) and coded_exchange.c (a step)
 * share. */
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

/* Merged: where a tensor's payload stands in each round. */
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
    size_t *parts; /* merged in halves: units of each rank */
    uint32_t rounds;
    gw_coded_tensor *tensors;
    gw_coded_exchange_place *places; /* of the tensors */
    int count, rank, world;
    size_t room;       /* bytes of one part of a message */
    uint8_t *out, *in; /* world parts each; merged: the payloads of all rounds in out, exact tensors in `in` */
    uint64_t *out_lengths, *in_lengths;
    size_t merged_bytes[GW_CODING_ROUNDS_MAX], exact_count;
    float *sum; /* owned: the own shares, one after the other */
    size_t sum_count, memory;
    gw_coded_exchange_phase phase;
    gw_op *op, *exact_op;
    const float *const *gradient;
    float *const *result;
    float scale;
    gw_time named_in; /* when the recording was opened that `label` and `error_name` are of */
    uint32_t label, error_name;
    uint8_t urgency;
};

/* What rank owns of a tensor. */
gw_codec_range gw_coded_share(const gw_coded_exchange *exchange, const gw_coded_tensor *tensor, int rank);

#endif
