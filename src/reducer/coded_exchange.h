/* coded_exchange.h - an all-reduce of named tensors through a codec: compressed bytes, not decompressed ones, cross the
 * wire.
 *
 * Three forms; the one that sends the fewest bytes is chosen when the exchange is opened:
 *   in-flight  a codec with merge: an ordinary plan reduces payloads in flight, and they are decoded once.
 *   two-pass   each rank owns a part of every tensor. Coded parts go to their owner (all-to-all), which adds them in
 *              rank order, encodes the sum again, and sends that to all (all-gather). 2 (p-1)/p payloads a rank.
 *   one-pass   every payload goes to every rank, which adds them in rank order. p-1 payloads a rank, no second loss.
 *
 * A polled state machine: gw_coded_exchange_next does what can be done and starts the next operation; the driver polls
 * the core until that is done. Memory is taken when it is opened. One thread at a time. */
#ifndef GW_REDUCER_CODED_EXCHANGE_H
#define GW_REDUCER_CODED_EXCHANGE_H

#include "compress/compress.h"
#include "engine/rank_core.h"

typedef enum gw_coded_form { GW_FORM_AUTO, GW_FORM_IN_FLIGHT, GW_FORM_TWO_PASS, GW_FORM_ONE_PASS } gw_coded_form;

const char *gw_coded_form_name(gw_coded_form form);

typedef struct gw_coded_exchange gw_coded_exchange;

typedef struct gw_coded_exchange_config {
    gw_codec_setup setup;
    const gw_codec_tensor *tensors; /* copied, names too */
    const bool *exact;              /* of each tensor: never encode it. NULL: none */
    int count;
    uint64_t seed;      /* of the job: random codecs draw from it */
    bool halves;        /* it stops halfway, when this rank holds its share of the sum, and goes on when told */
    gw_coded_form form; /* AUTO: the cheaper one */
} gw_coded_exchange_config;

gw_status gw_coded_exchange_open(gw_coded_exchange **exchange, gw_core *core, gw_team *team,
                                 const gw_coded_exchange_config *config, gw_error *error);
void gw_coded_exchange_close(gw_coded_exchange *exchange);

gw_coded_form gw_coded_exchange_chosen(const gw_coded_exchange *exchange);
size_t gw_coded_exchange_state_bytes(
    const gw_coded_exchange *exchange); /* residuals and what else codecs keep, on this rank */
size_t gw_coded_exchange_sent_bytes(const gw_coded_exchange *exchange);           /* by a rank in a step, at most */
size_t gw_coded_exchange_memory_bytes(const gw_coded_exchange *exchange);         /* payloads and sums */
gw_codec_state *gw_coded_exchange_state(gw_coded_exchange *exchange, int tensor); /* the worker's; NULL: none is kept */
/* What this rank, as an owner, keeps back of an element of a tensor; 0 where it does not own it. */
float gw_coded_exchange_owner_residual(const gw_coded_exchange *exchange, int tensor, uint64_t element);
gw_codec_state *gw_coded_exchange_owner_state(gw_coded_exchange *exchange,
                                              int tensor); /* the owner's; NULL: none is kept */
const gw_codec_guard *gw_coded_exchange_guard(const gw_coded_exchange *exchange, int tensor);
/* Takes over what `from` keeps of the tensors that both have, by name; the same codec and world. */
void gw_coded_exchange_adopt(gw_coded_exchange *exchange, gw_coded_exchange *from);

/* Of its messages from now on, as in gw_op_spec. */
void gw_coded_exchange_urgency(gw_coded_exchange *exchange, uint8_t urgency);
/* How the learning rate has grown since the step before (0: not), from the next gw_coded_exchange_begin on. */
void gw_coded_exchange_rate_growth(gw_coded_exchange *exchange, float growth);
/* Begins the exchange of a step: gradient[t] is read, result[t] gets the sum (the mean where average is set). Both stay
 * the caller's; they may be the same. */
void gw_coded_exchange_begin(gw_coded_exchange *exchange, uint64_t step, const float *const *gradient,
                             float *const *result, bool average);
/* The second half of one that stopped halfway. */
void gw_coded_exchange_go_on(gw_coded_exchange *exchange);
/* True when it, or its first half, is over: *status tells how. Otherwise *op is what to wait for before calling
 * again. */
bool gw_coded_exchange_next(gw_coded_exchange *exchange, gw_time now, gw_op **op, gw_status *status, gw_error *error);

/* On a communicator, and from gw_coded_exchange_begin to the end in the caller's own thread. The calling thread's last
 * error tells what went wrong. */
gw_status gw_coded_exchange_make(gw_coded_exchange **exchange, gw_comm *comm, const gw_coded_exchange_config *config);
gw_status gw_coded_exchange_run(gw_coded_exchange *exchange, gw_comm *comm);

#endif
