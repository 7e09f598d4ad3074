/* quorum.h - sets of ranks, and which set of survivors may go on after a loss. Pure: no state, no I/O, no clock. */
#ifndef GW_CONTROL_QUORUM_H
#define GW_CONTROL_QUORUM_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define GW_MEMBERS_BYTES 464 /* as many as fit into a control message */
#define GW_MEMBERS_MAX (GW_MEMBERS_BYTES * 8)

/* A set of job ranks below GW_MEMBERS_MAX. */
typedef struct gw_members {
    uint8_t bits[GW_MEMBERS_BYTES];
} gw_members;

static inline bool gw_members_has(const gw_members *set, int rank) { return (set->bits[rank / 8] >> (rank % 8)) & 1; }
static inline void gw_members_add(gw_members *set, int rank) { set->bits[rank / 8] |= (uint8_t)(1 << (rank % 8)); }
static inline void gw_members_drop(gw_members *set, int rank) { set->bits[rank / 8] &= (uint8_t) ~(1 << (rank % 8)); }
static inline bool gw_members_same(const gw_members *a, const gw_members *b) {
    return memcmp(a->bits, b->bits, sizeof a->bits) == 0;
}

/* Facts that one rank knows of another, or of itself. They stay true for ever: none is ever taken back. */
typedef struct gw_voter {
    uint32_t seen; /* the newest generation that it is known to have entered */
    uint32_t last; /* the newest generation that it is a member of */
    bool gone;     /* proved dead, has left the job, or knows that the job goes on without it */
} gw_voter;

/* May `side`, members of the current generation that answer each other, go on as the next one?
 *
 * Generation 0 has all ranks; each next one is a subset of the one before. A rank that is not known to have entered
 * generation j + 1 may still decide, with others like it, that generation j goes on without us. So for each generation
 * j up to the current one, let the rivals be the ranks outside `side` that are not gone, are members of j and are not
 * known to have entered j + 1. The side must be larger than the rivals of each j, or equally large and hold the lowest
 * rank of both. At the first loss there is only j = 0, and the rule reads: the majority of those that are not proved
 * dead goes on, and a tie goes to the side with the lowest rank.
 *
 * Claim: two disjoint sides S and T that both passed the test cannot both be whole, that is, have all members alive.
 * Proof: let j be the newest generation that the histories of S and T have in common. Each rank of T is a member of j.
 * It is alive, so S does not count it as gone. A rank enters one next generation only, and the ranks of T did not enter
 * that of S, so S knows of none that has entered it. Hence T is a subset of S's rivals of j, and S of T's. From the
 * test |S| >= |T| >= |S|: both are equally large, S's rivals are exactly T and T's are exactly S, and each side holds
 * the lowest rank of the two: a contradiction.
 * A side that is not whole has failed, and must pass the test again. Sides that share a rank are not both whole either,
 * since the rank enters only one of them. */
bool gw_quorum(const gw_voter *voters, int world, uint32_t generation, const gw_members *side);

#endif
