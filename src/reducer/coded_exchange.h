/* coded_exchange.h - an all-reduce of parts of tensors through a codec, in one lane (arch/owners.h): compressed bytes,
 * not decompressed ones, cross the wire.
 *
 * Three forms:
 *   in-flight  a codec with merge: a plan of the architecture reduces payloads in flight, and they are decoded once.
 *   two-pass   each member owns stripes of every tensor. Coded stripes go to their owner (all-to-all), which adds them
 *              in the members' order, encodes the sum again, and sends that to all (all-gather by the architecture's
 *              plan). 2 (p-1)/p payloads a member.
 *   one-pass   every payload goes to every member, which adds them in their order. p-1 payloads a member, no second
 *              loss. All of it is the first half.
 *
 * A polled state machine: gw_coded_exchange_next does what can be done and starts the next operation; the driver polls
 * the core until that is done. Memory is taken when it is opened, or lent for each exchange. One thread at a time. */
#ifndef GW_REDUCER_CODED_EXCHANGE_H
#define GW_REDUCER_CODED_EXCHANGE_H

#include "compress/compress.h"
#include "engine/rank_core.h"
#include "reducer/coded_payload.h"

typedef struct gw_coded_exchange gw_coded_exchange;

/* What the watch over the accuracy of some exchanges has done. */
typedef struct gw_coded_watched {
    int exact;                         /* parts of tensors that are sent exact now */
    uint64_t times;                    /* a part was sent exact from then on */
    uint64_t elements, exact_elements; /* of all parts, of those that are sent exact now */
} gw_coded_watched;

/* A part of a tensor. */
typedef struct gw_coded_part {
    gw_coded_tensor *tensor; /* the caller's, with its state; outlives the exchange */
    uint64_t first, count;   /* elements; cut at the codec's blocks */
} gw_coded_part;

typedef struct gw_coded_exchange_config {
    gw_codec_setup setup;
    const gw_coded_part *parts; /* copied */
    int count;
    int lane;                  /* the members of the team are those of this lane, in the order of hosts */
    int ranks;                 /* whose gradients are in the members' values: a mean divides by it */
    const char *arch;          /* of the strategy line: chooses plans */
    uint64_t seed;             /* of the job: random codecs draw from it */
    bool halves;               /* it stops halfway, when this rank holds its share of the sum, and goes on when told */
    gw_coded_watched *watched; /* of all exchanges of a reducer: its parts are sent exact while they leave the range in
                                  which the codec is trusted; all members decide alike. NULL: they are not watched */
    bool lent; /* gw_coded_exchange_lend is called before each begin and go_on; else it has payload memory */
} gw_coded_exchange_config;

gw_status gw_coded_exchange_open(gw_coded_exchange **exchange, gw_core *core, gw_team *team,
                                 const gw_coded_exchange_config *config, gw_error *error);
void gw_coded_exchange_close(gw_coded_exchange *exchange);

gw_coded_form gw_coded_exchange_chosen(const gw_coded_exchange *exchange);
size_t gw_coded_exchange_sent_bytes(const gw_coded_exchange *exchange); /* by a rank in a step, at most */
size_t gw_coded_exchange_moved_bytes(
    const gw_coded_exchange *exchange); /* sent and received in a step by the busiest member, at most */
size_t gw_coded_exchange_memory_bytes(const gw_coded_exchange *exchange); /* without what is lent */
/* What it needs while it, or a half of it, is under way; aligned to GW_PAYLOAD_ALIGNMENT (payload_pool.h). */
size_t gw_coded_exchange_payload_bytes(const gw_coded_exchange *exchange);
void gw_coded_exchange_lend(gw_coded_exchange *exchange, uint8_t *memory);

/* Of its messages from now on, as in gw_op_spec. */
void gw_coded_exchange_label(gw_coded_exchange *exchange, uint32_t label);
void gw_coded_exchange_urgency(gw_coded_exchange *exchange, uint8_t urgency);
/* How the learning rate has grown since the step before (0: not), from the next gw_coded_exchange_begin on. */
void gw_coded_exchange_rate_growth(gw_coded_exchange *exchange, float growth);
/* Begins the exchange of a step: gradient[i] is read, result[i] gets the sum (the mean where average is set). Both hold
 * what the lane has of part i, from its first element on, without gaps. They stay the caller's, and may be the same. */
void gw_coded_exchange_begin(gw_coded_exchange *exchange, uint64_t step, const float *const *gradient,
                             float *const *result, bool average);
/* The second half of one that stopped halfway. */
void gw_coded_exchange_go_on(gw_coded_exchange *exchange);
/* True when it, or its first half, is over: *status tells how. Otherwise *op is what to wait for before calling
 * again. */
bool gw_coded_exchange_next(gw_coded_exchange *exchange, gw_time now, gw_op **op, gw_status *status, gw_error *error);

#endif
