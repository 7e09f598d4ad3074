/* control.h - how bad news travels: heartbeats, deaths, aborts, who waits for whom, and who survived.
 *
 * Every rank keeps links to the ranks at distance 1, 2, 4, ... on either side (a circulant graph: 2 log2 p links, and
 * it stays connected whichever rank, or any 2 log2 p - 1 ranks, are lost). News is flooded: each rank passes on what it
 * hears for the first time. DESIGN.md speaks of a tree; the graph needs no repair when a rank dies, the first included.
 *
 * A polled state machine without I/O or clock: the driver delivers messages and lost links, and carries messages to
 * neighbours. All functions are called by one thread at a time. */
#ifndef GW_ENGINE_CONTROL_H
#define GW_ENGINE_CONTROL_H

#include "base/clock.h"
#include "base/status.h"

#define GW_CONTROL_BYTES 512
#define GW_CONTROL_TEXT (GW_CONTROL_BYTES - 48)
#define GW_CONTROL_WORLD_MAX (GW_CONTROL_TEXT * 8) /* shrink sends a bit for each rank */
#define GW_CONTROL_LINKS_MAX 64

typedef enum gw_control_kind {
    GW_CONTROL_BEAT = 1, /* to neighbours only: the sender's progress thread lives */
    GW_CONTROL_ABORT,    /* the generation is over: status, subject (to blame, or -1), text */
    GW_CONTROL_LOST,     /* the subject's process is gone: text */
    GW_CONTROL_LEFT,     /* the origin finalised */
    GW_CONTROL_WAIT,     /* the origin waits for the subject (-1: no longer): text */
    GW_CONTROL_SHRINK,   /* the origin wants to go on without the lost */
    GW_CONTROL_MEMBERS,  /* who goes on: one bit for each rank in text */
} gw_control_kind;

typedef struct gw_control_message {
    uint8_t kind;
    uint8_t status;
    int32_t origin;      /* who said it first */
    int32_t subject;
    uint32_t generation;
    uint64_t serial;     /* counts the origin's flooded messages from 1; 0 for beats */
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
    /* The current generation has failed, for the first time: from outside or by gw_control_abort. */
    void (*aborted)(void *ctx, const gw_error *error);
    /* A rank is gone for good, or left in order: its links can be given up. */
    void (*gone)(void *ctx, int rank, bool left, const char *detail);
    /* To be logged as a warning. */
    void (*slow)(void *ctx, const char *sentence);
    const char *(*host_name)(void *ctx, int rank);
} gw_control_events;

gw_status gw_control_open(gw_control **control, int rank, int world, gw_time deadline, const gw_control_events *events,
                          gw_time now, gw_error *error);
void gw_control_close(gw_control *control);

void gw_control_receive(gw_control *control, int neighbour, const gw_control_message *message, gw_time now);
void gw_control_link_lost(gw_control *control, int neighbour, const char *detail, gw_time now);
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

/* After a failure: asks to go on. When all who can have asked, or the deadline has passed, the lowest of them decides:
 * gw_control_shrunk then returns true, the generation has been raised, and member[r] tells who is in it. */
void gw_control_shrink(gw_control *control, gw_time now);
bool gw_control_shrunk(gw_control *control, bool *member);

#endif
