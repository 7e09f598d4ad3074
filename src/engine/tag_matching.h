/* tag_matching.h - pairs the sends that peers announce with the receives that this rank posts, on one team. Pure: no
 * frames, no operations, no clock.
 *
 * The rule is MPI's, without wildcard tags. A receive accepts sends with its tag, from its source or from any. It gets
 * the first of them that was announced; an announced send gets the first posted receive that accepts it. Sends of one
 * rank are announced in the order of its calls, so two with the same tag never overtake each other. */
#ifndef GW_ENGINE_TAG_MATCHING_H
#define GW_ENGINE_TAG_MATCHING_H

#include "engine/engine.h"

#define GW_TAG_SENDS_MAX 65536 /* announced sends of one rank that no receive has matched */

/* An announced send. */
typedef struct gw_tag_send {
    struct gw_tag_send *next;
    int source; /* team rank */
    int tag;
    uint64_t number; /* among the tagged sends of this source to this rank */
    bool requested;  /* announced without data: it waits for a grant */
    gw_signature signature;
} gw_tag_send;

/* A posted receive. Owned by the caller, in a list here until it is matched. */
typedef struct gw_tag_recv {
    struct gw_tag_recv *next;
    int source; /* team rank, or GW_ANY_SOURCE */
    int tag;
} gw_tag_recv;

typedef struct gw_tag_peer {
    uint64_t sent;                 /* tagged sends to it so far */
    uint64_t announced;            /* its sends 0..announced-1 have been announced */
    gw_tag_send *held, *held_last; /* later ones that overtook their predecessors, by number */
    int kept;                      /* its sends in all lists */
} gw_tag_peer;

typedef struct gw_tag_matching {
    gw_tag_peer *peers; /* by team rank */
    int size;
    gw_tag_send *sends, *last;   /* announced and not matched, in the order of announcement */
    gw_tag_recv *recvs, *newest; /* posted and not matched, in the order of posting */
    gw_tag_send *spare;
} gw_tag_matching;

typedef enum gw_tag_verdict { GW_TAG_NEW, GW_TAG_SEEN, GW_TAG_TOO_MANY, GW_TAG_NO_MEMORY } gw_tag_verdict;

/* NULL: out of memory. */
gw_tag_matching *gw_tags_open(int size);
void gw_tags_close(gw_tag_matching *tags);
/* Forgets all sends and receives; the numbers go on. */
void gw_tags_clear(gw_tag_matching *tags);
/* Takes an announcement, in any order. SEEN: this number was announced before, and nothing has changed. After NEW, call
 * gw_tags_next until it returns false. */
gw_tag_verdict gw_tags_announce(gw_tag_matching *tags, const gw_tag_send *send);
/* The next send of this source, in the order of its numbers, that a posted receive accepts; both leave the lists. */
bool gw_tags_next(gw_tag_matching *tags, int source, gw_tag_send *send, gw_tag_recv **recv);
/* The first posted receive that names this source; NULL: none. */
gw_tag_recv *gw_tags_first(const gw_tag_matching *tags, int source);
/* True if an announced send matches: it leaves the list. False: the receive is in the list now. */
bool gw_tags_post(gw_tag_matching *tags, gw_tag_recv *recv, gw_tag_send *send);

#endif
