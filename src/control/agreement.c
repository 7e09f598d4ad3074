/* agreement.c - see agreement.h. Cost: four messages for each member. */
#include "control/agreement.h"

#include <stdlib.h>

#define RANK_BITS 16

typedef enum phase { QUIET, PREPARING, ACCEPTING } phase;

struct gw_agreement {
    int rank, world;
    gw_agreement_events events;
    uint64_t highest; /* the highest ballot seen */
    gw_members reach;
    /* As an acceptor. Kept until the generation is over, also between two attempts. */
    uint64_t promised, accepted;
    gw_members value; /* accepted */
    /* As a proposer. */
    phase phase;
    uint64_t ballot, best; /* best: the highest ballot under which a value was accepted before */
    gw_members votes, proposal;
    gw_members *heard_by; /* world entries: the ranks that each voter hears */
};

gw_status gw_agreement_open(gw_agreement **out, int rank, int world, const gw_agreement_events *events,
                            gw_error *error) {
    gw_agreement *a = calloc(1, sizeof *a);
    if (!a) return gw_fail(error, GW_MEMORY, "out of memory for an agreement of %d ranks", world);
    *a = (gw_agreement){.rank = rank, .world = world, .events = *events};
    *out = a;
    return GW_OK;
}

void gw_agreement_close(gw_agreement *a) {
    if (!a) return;
    free(a->heard_by);
    free(a);
}

void gw_agreement_renew(gw_agreement *a) {
    a->phase = QUIET;
    a->highest = a->promised = a->accepted = a->ballot = 0;
    free(a->heard_by);
    a->heard_by = NULL;
}

static void send_to(gw_agreement *a, int to, const gw_vote *vote) {
    if (vote->ballot > a->highest) a->highest = vote->ballot;
    if (to == a->rank) gw_agreement_receive(a, to, vote);
    else a->events.send(a->events.ctx, to, vote);
}

static void send_to_all(gw_agreement *a, const gw_members *to, const gw_vote *vote) {
    for (int r = 0; r < a->world; r++)
        if (gw_members_has(to, r)) send_to(a, r, vote);
}

/* As an acceptor. */

static gw_vote promise(const gw_agreement *a) {
    return (gw_vote){.kind = GW_VOTE_PROMISE, .ballot = a->promised, .accepted = a->accepted,
                     .set = a->accepted ? a->value : a->reach};
}

static void on_prepare(gw_agreement *a, int from, const gw_vote *vote) {
    if (vote->ballot > a->promised) a->promised = vote->ballot;
    gw_vote answer = promise(a);
    send_to(a, from, &answer);
}

static void on_accept(gw_agreement *a, int from, const gw_vote *vote) {
    if (vote->ballot >= a->promised) {
        a->promised = a->accepted = vote->ballot;
        a->value = vote->set;
    }
    send_to(a, from, &(gw_vote){.kind = GW_VOTE_ACCEPTED, .ballot = a->promised});
}

/* As a proposer. */

static void on_promise(gw_agreement *a, int from, const gw_vote *vote) {
    if (a->phase != PREPARING || vote->ballot != a->ballot) return;
    gw_members_add(&a->votes, from);
    if (!vote->accepted) a->heard_by[from] = vote->set;
    if (vote->accepted <= a->best) return;
    a->best = vote->accepted;
    a->proposal = vote->set;
}

static void on_accepted(gw_agreement *a, int from, const gw_vote *vote) {
    if (a->phase == ACCEPTING && vote->ballot == a->ballot) gw_members_add(&a->votes, from);
}

void gw_agreement_receive(gw_agreement *a, int from, const gw_vote *vote) {
    if (vote->ballot > a->highest) a->highest = vote->ballot;
    if (vote->ballot > a->ballot) a->phase = QUIET; /* another proposer is ahead */
    switch (vote->kind) {
    case GW_VOTE_PREPARE: on_prepare(a, from, vote); break;
    case GW_VOTE_PROMISE: on_promise(a, from, vote); break;
    case GW_VOTE_ACCEPT: on_accept(a, from, vote); break;
    case GW_VOTE_ACCEPTED: on_accepted(a, from, vote); break;
    }
}

/* While a ballot collects promises, its audience (the ranks that are asked) changes with the ranks that this rank
 * hears. */
static void follow_reach(gw_agreement *a, const gw_members *before) {
    for (int r = 0; r < a->world; r++) {
        bool now = gw_members_has(&a->reach, r);
        if (!now) gw_members_drop(&a->votes, r);
        if (now && !gw_members_has(before, r))
            send_to(a, r, &(gw_vote){.kind = GW_VOTE_PREPARE, .ballot = a->ballot});
    }
}

void gw_agreement_reach(gw_agreement *a, const gw_members *reach) {
    gw_members before = a->reach;
    if (gw_members_same(&before, reach)) return;
    a->reach = *reach;
    if (a->phase == PREPARING) follow_reach(a, &before);
    int proposer = (int)(a->promised & ((1u << RANK_BITS) - 1));
    gw_vote answer = promise(a);
    if (a->promised && !a->accepted && gw_members_has(reach, proposer)) send_to(a, proposer, &answer);
}

void gw_agreement_propose(gw_agreement *a) {
    if (!a->heard_by) a->heard_by = calloc((size_t)a->world, sizeof *a->heard_by);
    if (!a->heard_by) return; /* another rank may have the memory to propose */
    a->ballot = ((a->highest >> RANK_BITS) + 1) << RANK_BITS | (unsigned)a->rank;
    a->phase = PREPARING;
    a->best = 0;
    a->votes = (gw_members){{0}};
    send_to_all(a, &a->reach, &(gw_vote){.kind = GW_VOTE_PREPARE, .ballot = a->ballot});
}

bool gw_agreement_proposing(const gw_agreement *a) { return a->phase != QUIET; }

static bool hear_each_other(const gw_agreement *a, int r, int s) {
    return gw_members_has(&a->heard_by[r], s) && gw_members_has(&a->heard_by[s], r);
}

static int unheard(const gw_agreement *a, const gw_members *set, int rank) {
    int count = 0;
    for (int r = 0; r < a->world; r++) count += r != rank && gw_members_has(set, r) && !hear_each_other(a, r, rank);
    return count;
}

/* The voters that all hear each other: drops the voter that misses most others (of equals the highest rank), until none
 * misses any. The proposer has heard all voters and stays. */
static gw_members clique(const gw_agreement *a) {
    gw_members set = a->votes;
    for (;;) {
        int worst = -1, most = 0;
        for (int r = 0; r < a->world; r++) {
            if (r == a->rank || !gw_members_has(&set, r)) continue;
            int missing = unheard(a, &set, r);
            if (missing && missing >= most) worst = r, most = missing;
        }
        if (worst < 0) return set;
        gw_members_drop(&set, worst);
    }
}

static void ask_to_accept(gw_agreement *a, const gw_members *audience) {
    gw_vote vote = {.kind = GW_VOTE_ACCEPT, .ballot = a->ballot, .set = a->proposal};
    a->phase = ACCEPTING;
    a->votes = (gw_members){{0}};
    send_to_all(a, audience, &vote);
}

bool gw_agreement_advance(gw_agreement *a, bool late, gw_members *value) {
    if (a->phase == PREPARING) {
        if (!late && !gw_members_same(&a->votes, &a->reach)) return false;
        gw_members side = a->best ? a->votes : clique(a);
        if (!(late || gw_members_same(&side, &a->reach)) || !a->events.goes_on(a->events.ctx, &side)) return false;
        if (!a->best) a->proposal = side;
        ask_to_accept(a, &side);
    }
    if (a->phase != ACCEPTING || !a->events.goes_on(a->events.ctx, &a->votes)) return false;
    *value = a->proposal;
    return true;
}
