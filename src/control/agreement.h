/* agreement.h - the survivors of a generation agree on the members of the next one: Paxos (L. Lamport, The part-time
 * parliament, 1998) for one value, the set of members. Its quorums are the sides that pass quorum.h.
 *
 * A proposer asks the ranks that it hears for a promise (PREPARE, PROMISE). It adopts the value that was accepted under
 * the highest ballot, if any; otherwise the value is a set of ranks that promised and that all hear each other. Then it
 * has the value accepted (ACCEPT, ACCEPTED). So if a proposer dies in the middle, a later one cannot decide another
 * value: every later quorum finds the value that a quorum has accepted, unless all ranks that could report it are dead.
 *
 * A polled state machine without I/O or clock. All functions are called by one thread at a time. */
#ifndef GW_CONTROL_AGREEMENT_H
#define GW_CONTROL_AGREEMENT_H

#include "base/status.h"
#include "control/quorum.h"

typedef enum gw_vote_kind { GW_VOTE_PREPARE, GW_VOTE_PROMISE, GW_VOTE_ACCEPT, GW_VOTE_ACCEPTED } gw_vote_kind;

/* PROMISE and ACCEPTED with a higher ballot than was asked for are refusals. */
typedef struct gw_vote {
    gw_vote_kind kind;
    uint64_t ballot;   /* attempt number; the proposer's rank in the lowest 16 bits */
    uint64_t accepted; /* PROMISE: the ballot of the value accepted before; 0: none */
    /* ACCEPT: the value; PROMISE: the accepted one, or the ranks that the sender hears if there is none */
    gw_members set;
} gw_vote;

typedef struct gw_agreement_events {
    void *ctx;
    void (*send)(void *ctx, int to, const gw_vote *vote); /* never to itself */
    bool (*goes_on)(void *ctx, const gw_members *side);
} gw_agreement_events;

typedef struct gw_agreement gw_agreement;

gw_status gw_agreement_open(gw_agreement **agreement, int rank, int world, const gw_agreement_events *events,
                            gw_error *error);
void gw_agreement_close(gw_agreement *agreement);
/* For the next generation: nothing is promised or accepted. */
void gw_agreement_renew(gw_agreement *agreement);

/* The ranks that this rank hears, itself included. They are the audience of its ballots. */
void gw_agreement_reach(gw_agreement *agreement, const gw_members *reach);
void gw_agreement_receive(gw_agreement *agreement, int from, const gw_vote *vote);

/* Begins a ballot, and gives up an earlier one of its own. */
void gw_agreement_propose(gw_agreement *agreement);
bool gw_agreement_proposing(const gw_agreement *agreement);
/* Advances its own ballot as far as possible. late: no longer waits for ranks of the audience that do not answer, or
 * that not all others hear. True: *value is decided. */
bool gw_agreement_advance(gw_agreement *agreement, bool late, gw_members *value);

#endif
