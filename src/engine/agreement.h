/* agreement.h - the survivors of a generation agree on who goes on: Paxos (L. Lamport, The part-time parliament, 1998)
 * for one value, the set of members, with the sides of quorum.h as quorums.
 *
 * A proposer asks those that answer it for a promise (PREPARE, PROMISE), takes over the value that was accepted under
 * the highest ballot, if any, and has it accepted (ACCEPT, ACCEPTED). Without one the value is the set of those that
 * promised and all hear each other. So a proposer that dies in the middle leaves nothing behind that a later one could
 * contradict: what a quorum has accepted is found by every later quorum, unless all that could tell are dead.
 *
 * A polled state machine without I/O or clock. All functions are called by one thread at a time. */
#ifndef GW_ENGINE_AGREEMENT_H
#define GW_ENGINE_AGREEMENT_H

#include "base/status.h"
#include "engine/quorum.h"

typedef enum gw_vote_kind { GW_VOTE_PREPARE, GW_VOTE_PROMISE, GW_VOTE_ACCEPT, GW_VOTE_ACCEPTED } gw_vote_kind;

/* PROMISE and ACCEPTED with a higher ballot than was asked for are refusals. */
typedef struct gw_vote {
    gw_vote_kind kind;
    uint64_t ballot;   /* round, proposer's rank in the lowest 16 bits */
    uint64_t accepted; /* PROMISE: the ballot of the value accepted before; 0: none */
    gw_members set;    /* ACCEPT: the value; PROMISE: the accepted one, or whom the sender hears if there is none */
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
/* The next generation: nothing is promised. */
void gw_agreement_renew(gw_agreement *agreement);

/* Whom this rank hears, itself included. Those are the audience of its ballots. */
void gw_agreement_reach(gw_agreement *agreement, const gw_members *reach);
void gw_agreement_hear(gw_agreement *agreement, int from, const gw_vote *vote);

/* Begins a ballot; one of its own that was under way is given up. */
void gw_agreement_propose(gw_agreement *agreement);
bool gw_agreement_proposing(const gw_agreement *agreement);
/* Takes its ballot as far as it can. late: without those of the audience that do not answer, or are not heard by all.
 * True: *value has been decided. */
bool gw_agreement_advance(gw_agreement *agreement, bool late, gw_members *value);

#endif
