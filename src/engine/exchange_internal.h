/* exchange_internal.h - what exchange_open.c (forms, shares, memory) and exchange.c (a step) share. */
#ifndef GW_ENGINE_EXCHANGE_INTERNAL_H
#define GW_ENGINE_EXCHANGE_INTERNAL_H

#include "engine/exchange.h"

#define EXACT_COUNT_MAX 1024 /* smaller tensors (biases, norms) are sent exact: they cost next to nothing */
#define EXACT_BIT UINT32_C(0x80000000)
#define ROUNDS_MAX 2

typedef enum gw_exchange_phase {
    PHASE_ENCODE,
    PHASE_REDUCED, /* merged: a round has been reduced */
    PHASE_SUM,     /* owned: pieces for the own shares are here */
    PHASE_HALFWAY, /* told to stop here, until gw_exchange_go_on */
    PHASE_RESUMED,
    PHASE_SPREAD,  /* what came from all ranks is here */
    PHASE_OVER
} gw_exchange_phase;

typedef struct gw_exchange_tensor {
    gw_codec_tensor what;  /* the name is a copy */
    gw_codec_state state;  /* of the worker's pass, the whole tensor */
    gw_codec_state second; /* of the owner's pass, the own share */
    gw_codec_report report;
    gw_codec_guard guard;
    bool exact;            /* always */
    size_t at[ROUNDS_MAX]; /* merged: where its payload begins */
    size_t bytes[ROUNDS_MAX];
} gw_exchange_tensor;

struct gw_exchange {
    gw_core *core;
    gw_team *team;
    gw_codec_setup setup, second;
    gw_codec_setup exact; /* flushes the residual of the coded pass */
    gw_codec_setup plain; /* keeps nothing: tensors that are always exact, and decoding either */
    gw_codec_call call;
    gw_exchange_form form;
    bool halves;
    size_t *parts;     /* merged in halves: units of each rank */
    uint32_t rounds;
    gw_exchange_tensor *tensors;
    int count, rank, world;
    size_t room;       /* bytes of one part of a message */
    uint8_t *out, *in; /* world parts each; merged: ROUNDS_MAX payloads in out, exact tensors in `in` */
    uint64_t *out_lengths, *in_lengths;
    size_t merged_bytes[ROUNDS_MAX], exact_count;
    float *sum;        /* owned: the own shares, one after the other */
    size_t sum_count, memory;
    gw_exchange_phase phase;
    gw_op *op, *exact_op;
    const float *const *gradient;
    float *const *result;
    float scale;
    gw_time named_in; /* when the recording was opened that `label` and `error_name` are of */
    uint32_t label, error_name;
};

/* What rank owns of a tensor. */
gw_codec_range gw_exchange_share(const gw_exchange *exchange, const gw_exchange_tensor *tensor, int rank);
/* Bytes that a piece may take in a message, its length included. */
size_t gw_exchange_piece_room(const gw_exchange *exchange, const gw_exchange_tensor *tensor,
                              const gw_codec_setup *setup, gw_codec_range range);
size_t gw_exchange_padded(size_t bytes); /* to 4 bytes */

#endif
