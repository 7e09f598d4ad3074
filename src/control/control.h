/* control.h - the control plane: heartbeats, deaths, aborts, wait diagnosis, and the agreement of survivors.
 *
 * Every rank keeps links to the ranks at distance 1, 2, 4, ... on either side (a circulant graph: 2 log2 p links, and
 * it stays connected if any 2 log2 p - 1 ranks are lost). Messages are flooded: each rank forwards what it receives for
 * the first time. The graph needs no repair when a rank dies, even if it is rank 0. To shrink a job, survivors make
 * links to all others. The next generation floods over the links at distance 1, 2, 4, ... of its own numbering; its
 * other links only show that a process has ended.
 *
 * A polled state machine without I/O or clock: the driver delivers messages and lost links, and sends messages to
 * neighbours. All functions are called by one thread at a time. */
#ifndef GW_CONTROL_CONTROL_H
#define GW_CONTROL_CONTROL_H

#include "base/clock.h"
#include "base/status.h"
#include "control/quorum.h"

#define GW_CONTROL_BYTES 512
#define GW_CONTROL_TEXT (GW_CONTROL_BYTES - 48)
#define GW_CONTROL_WORLD_MAX GW_MEMBERS_MAX /* the largest world that can be shrunk */
#define GW_CONTROL_LINKS_MAX 64             /* neighbours: the links that exist from the beginning */

typedef enum gw_control_kind {
    GW_CONTROL_BEAT = 1, /* to neighbours only: the sender's progress thread is alive */
    GW_CONTROL_ABORT,    /* the generation is over: status, subject (the rank to blame, or -1), text */
    GW_CONTROL_LOST,     /* the subject is lost: text; status: GW_PEER_LOST if its death is proved, else GW_OK */
    GW_CONTROL_LEFT,     /* the origin finalised */
    GW_CONTROL_WAIT,     /* the origin waits for the subject (-1: for none): text */
    /* The kinds below go over one link and are not forwarded; text holds a bit for each rank. */
    GW_CONTROL_SHRINK,  /* the origin wants to go on without the lost: bits of those proved dead or left */
    GW_CONTROL_PREPARE, /* PREPARE to ACCEPTED: see agreement.h */
    GW_CONTROL_PROMISE,
    GW_CONTROL_ACCEPT,
    GW_CONTROL_ACCEPTED,
    GW_CONTROL_MEMBERS, /* the origin has entered the next generation: bits of its members */
} gw_control_kind;

typedef struct gw_control_message {
    uint8_t kind;
    uint8_t status;
    int32_t origin; /* the rank that sent it first */
    int32_t subject;
    uint32_t generation;
    uint32_t lineage; /* digest of the members of all generations so far: differs between rivals of one number */
    uint64_t serial;  /* counts the origin's flooded messages from 1; 0 for all others */
    uint64_t ballot;  /* of an agreement; ABORT: 1 if it ends gw_shrink, not the generation */
    uint64_t accepted;
    char text[GW_CONTROL_TEXT]; /* a sentence, or bits */
} gw_control_message;

/* Fixed length, little-endian. Reading checks every field against the world's size. */
void gw_control_write(const gw_control_message *message, uint8_t bytes[GW_CONTROL_BYTES]);
gw_status gw_control_read(gw_control_message *message, const uint8_t bytes[GW_CONTROL_BYTES], int world,
                          gw_error *error);

/* Writes the neighbours of a rank in ascending order, and returns their number. */
int gw_control_neighbours(int rank, int world, int neighbours[GW_CONTROL_LINKS_MAX]);

typedef struct gw_control gw_control;

typedef struct gw_control_events {
    void *ctx;
    void (*send)(void *ctx, int neighbour, const gw_control_message *message);
    /* Asks for a new link to this rank, unless one is being made. The driver reports the outcome by gw_control_link_up
     * or gw_control_died, or not at all. */
    void (*dial)(void *ctx, int rank);
    /* The current generation has failed. Called once, with the first cause. */
    void (*aborted)(void *ctx, const gw_error *error);
    /* A rank is lost, or left in order: its links can be given up. */
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

/* The links to gw_control_neighbours are up. */
gw_status gw_control_open(gw_control **control, const gw_control_config *config, const gw_control_events *events,
                          gw_time now, gw_error *error);
void gw_control_close(gw_control *control);

void gw_control_receive(gw_control *control, int neighbour, const gw_control_message *message, gw_time now);
void gw_control_link_up(gw_control *control, int rank, gw_time now);
void gw_control_link_lost(gw_control *control, int rank, const char *detail, gw_time now);
/* True if that rank is a neighbour: its messages come over a link to it, not through other ranks. */
bool gw_control_is_neighbour(const gw_control *control, int rank);
/* The process of a rank has ended, and there is proof (a pidfd; its host answers and refuses its port). */
void gw_control_died(gw_control *control, int rank, const char *detail, gw_time now);
/* Sends heartbeats, detects silence, advances shrinking. */
void gw_control_poll(gw_control *control, gw_time now);
gw_time gw_control_next(const gw_control *control); /* when to poll again at the latest */

/* Ends the generation everywhere, unless it has ended already. */
void gw_control_abort(gw_control *control, const gw_error *error);
/* Whether heartbeats of that rank arrive here: false also where it is not a neighbour. */
bool gw_control_hears(const gw_control *control, int rank, gw_time now);
/* From the engine: an operation waits for these ranks (count 0: unknown), for at most `deadline` ns without progress.
 * what "": it no longer waits. */
void gw_control_waiting(gw_control *control, const int *awaited, int count, const char *what, gw_time deadline,
                        gw_time now);
/* From the engine: that deadline passed. Finds the rank to blame, and aborts. */
void gw_control_overdue(gw_control *control, const int *awaited, int count, const char *what, gw_time deadline,
                        gw_time now);
void gw_control_leave(gw_control *control);

bool gw_control_lost(const gw_control *control, int rank);
bool gw_control_dead(const gw_control *control, int rank); /* its death is proved */
bool gw_control_left(const gw_control *control, int rank);
const gw_error *gw_control_error(const gw_control *control); /* of the current generation */
uint32_t gw_control_generation(const gw_control *control);

/* After a failure: asks to go on without the lost ranks, until `until` at the latest. Survivors make links to each
 * other, find out who is proved dead, and agree (agreement.h) on the members of the next generation: a side that passes
 * the test of quorum.h. They wait half of the time for members that do not ask, and a quarter for those that are lost
 * and not proved dead. gw_control_shrunk returns true when it is over. GW_OK in *error: the next generation has begun,
 * all its members are known to have entered it, and member[r] says who they are. Otherwise *error says why not. If the
 * next generation has begun and failed at once, as gw_control_generation shows, the call can be repeated with the same
 * `until`. */
void gw_control_shrink(gw_control *control, gw_time until, gw_time now);
bool gw_control_shrunk(gw_control *control, bool *member, gw_error *error);

#endif
