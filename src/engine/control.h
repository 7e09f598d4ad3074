/* control.h - how bad news travels: heartbeats, deaths, aborts, who waits for whom, and who survived.
 *
 * Every rank keeps links to the ranks at distance 1, 2, 4, ... on either side (a circulant graph: 2 log2 p links, and
 * it stays connected whichever rank, or any 2 log2 p - 1 ranks, are lost). News is flooded: each rank passes on what it
 * hears for the first time. The graph needs no repair when a rank dies, the first included. To shrink a job survivors
 * make links to all others; of these the next generation uses those at distance 1, 2, 4, ... of its own numbering, and
 * the rest only tell of a process that ends.
 *
 * A polled state machine without I/O or clock: the driver delivers messages and lost links, and carries messages to
 * neighbours. All functions are called by one thread at a time. */
#ifndef GW_ENGINE_CONTROL_H
#define GW_ENGINE_CONTROL_H

#include "base/clock.h"
#include "base/status.h"
#include "engine/quorum.h"

#define GW_CONTROL_BYTES 512
#define GW_CONTROL_TEXT (GW_CONTROL_BYTES - 48)
#define GW_CONTROL_WORLD_MAX GW_MEMBERS_MAX /* that can be shrunk */
#define GW_CONTROL_LINKS_MAX 64 /* neighbours: of the links that stand from the beginning */

typedef enum gw_control_kind {
    GW_CONTROL_BEAT = 1, /* to neighbours only: the sender's progress thread lives */
    GW_CONTROL_ABORT,    /* the generation is over: status, subject (to blame, or -1), text */
    GW_CONTROL_LOST,     /* the subject's process is gone: text */
    GW_CONTROL_LEFT,     /* the origin finalised */
    GW_CONTROL_WAIT,     /* the origin waits for the subject (-1: no longer): text */
    /* Those below go over one link and are not passed on; text holds a bit for each rank. */
    GW_CONTROL_SHRINK,   /* the origin wants to go on without the lost: who is proved dead or has left */
    GW_CONTROL_PREPARE,  /* these four: agreement.h */
    GW_CONTROL_PROMISE,
    GW_CONTROL_ACCEPT,
    GW_CONTROL_ACCEPTED,
    GW_CONTROL_MEMBERS,  /* the origin has entered the next generation: who is in it */
} gw_control_kind;

typedef struct gw_control_message {
    uint8_t kind;
    uint8_t status;
    int32_t origin;      /* who said it first */
    int32_t subject;
    uint32_t generation;
    uint32_t lineage;    /* which of several generations of that number: a digest of who was in it and before */
    uint64_t serial;     /* counts the origin's flooded messages from 1; 0 for all others */
    uint64_t ballot;     /* of an agreement; ABORT: 1 if it ends gw_shrink, not the generation */
    uint64_t accepted;
    char text[GW_CONTROL_TEXT]; /* a sentence, or bits */
} gw_control_message;

/* Fixed length, little-endian. Reading checks every field against the world's size. */
void gw_control_write(const gw_control_message *message, uint8_t bytes[GW_CONTROL_BYTES]);
gw_status gw_control_read(gw_control_message *message, const uint8_t bytes[GW_CONTROL_BYTES], int world,
                          gw_error *error);

/* The neighbours of a rank, in ascending order; how many. */
int gw_control_neighbours(int rank, int world, int neighbours[GW_CONTROL_LINKS_MAX]);

typedef struct gw_control gw_control;

typedef struct gw_control_events {
    void *ctx;
    void (*send)(void *ctx, int neighbour, const gw_control_message *message);
    /* A new link to this rank is wanted, unless one is being made. What comes of it is told by gw_control_link_up or
     * gw_control_died, or not at all. */
    void (*dial)(void *ctx, int rank);
    /* The current generation has failed, for the first time: from outside or by gw_control_abort. */
    void (*aborted)(void *ctx, const gw_error *error);
    /* A rank is gone for good, or left in order: its links can be given up. */
    void (*gone)(void *ctx, int rank, bool left, const char *detail);
    /* A rank that was lost, and not proved dead, is a member of the generation that begins. */
    void (*returned)(void *ctx, int rank);
    /* To be logged as a warning. */
    void (*slow)(void *ctx, const char *sentence);
    const char *(*host_name)(void *ctx, int rank);
} gw_control_events;

typedef struct gw_control_config {
    int rank, world;
    gw_time deadline;
    bool any_side; /* quorum=off: every side of a cut goes on */
} gw_control_config;

/* The links to gw_control_neighbours stand. */
gw_status gw_control_open(gw_control **control, const gw_control_config *config, const gw_control_events *events,
                          gw_time now, gw_error *error);
void gw_control_close(gw_control *control);

void gw_control_receive(gw_control *control, int neighbour, const gw_control_message *message, gw_time now);
void gw_control_link_up(gw_control *control, int rank, gw_time now);
void gw_control_link_lost(gw_control *control, int rank, const char *detail, gw_time now);
/* Its own news comes over a link to it, not by way of others. */
bool gw_control_near(const gw_control *control, int rank);
/* The process of a rank has ended, which is proved (a pidfd; its host answers and refuses its port). */
void gw_control_died(gw_control *control, int rank, const char *detail, gw_time now);
/* Beats, silence, shrinking. */
void gw_control_poll(gw_control *control, gw_time now);
gw_time gw_control_next(const gw_control *control); /* when to poll again at the latest */

/* Ends the generation everywhere, unless it has ended already. */
void gw_control_abort(gw_control *control, const gw_error *error);
/* From the engine: an operation waits for these ranks (0: unknown); what "": it goes on. */
void gw_control_waiting(gw_control *control, const int *awaited, int count, const char *what, gw_time now);
/* From the engine: the deadline passed. Finds out whom to blame, and aborts. */
void gw_control_overdue(gw_control *control, const int *awaited, int count, const char *what, gw_time now);
void gw_control_leave(gw_control *control);

bool gw_control_lost(const gw_control *control, int rank);
bool gw_control_dead(const gw_control *control, int rank); /* proved */
bool gw_control_left(const gw_control *control, int rank);
const gw_error *gw_control_error(const gw_control *control); /* of the current generation */
uint32_t gw_control_generation(const gw_control *control);

/* After a failure: asks to go on without the lost, until then at the latest. Survivors make links to each other, find
 * out who is proved dead, and agree (agreement.h) on the members of the next generation: a side that quorum.h lets go
 * on. Members that do not ask are waited for half of the time, those that are lost and not proved dead a quarter.
 * gw_control_shrunk returns true when it is over. GW_OK in *error: the generation has been raised, all its members are
 * known to be in it, and member[r] tells who they are. Otherwise why not; where the generation was raised and failed at
 * once, as gw_control_generation tells, it can be asked again with the same `until`. */
void gw_control_shrink(gw_control *control, gw_time until, gw_time now);
bool gw_control_shrunk(gw_control *control, bool *member, gw_error *error);

#endif
