/* active_message.h - active messages: the receiver need not post a receive. A header announces a payload, which follows
 * when the receiver admits it. Between two ranks, headers of one kind arrive in the order sent. A later message of
 * another kind may overtake, and so may the payload of a later message. Built on point-to-point operations; the team
 * must not be used for any others.
 *
 * A polled state machine; its driver owns it. Messages are pooled, so nothing is allocated in the steady state. */
#ifndef GW_ENGINE_ACTIVE_MESSAGE_H
#define GW_ENGINE_ACTIVE_MESSAGE_H

#include "engine/rank_core.h"

#define GW_AM_KINDS 16
/* Payloads from other hosts are admitted in slices, so small that every sender has some in flight. */
#define GW_AM_SLICE_BYTES ((size_t)96 << 10)

/* The header, in its wire format. This module reads only kind and bytes; the other fields are for the sender and the
 * receiver. */
typedef struct gw_am_message {
    uint32_t kind; /* kinds that are equal modulo GW_AM_KINDS share a queue; others never wait for each other */
    uint32_t partition;
    uint64_t round, step;
    float growth;
    uint32_t joined;
    uint64_t bytes; /* of the payload; 0: none */
} gw_am_message;

typedef struct gw_am gw_am;

/* Called from within gw_am_poll. */
typedef struct gw_am_events {
    void *ctx;
    /* Gives the buffer for the payload; NULL, with *error set, if the message is invalid. Only called with a
     * payload. */
    void *(*recv_buffer)(void *ctx, int from, const gw_am_message *message, gw_error *error);
    void (*arrived)(void *ctx, int from, const gw_am_message *message, gw_time now,
                    gw_error *error);                              /* header and payload are complete */
    void (*sent)(void *ctx, int to, const gw_am_message *message); /* its payload's memory may be reused */
} gw_am_events;

gw_status gw_am_open(gw_am **am, gw_core *core, gw_team *team, const gw_am_events *events, gw_error *error);
/* Only when nothing is in flight, or the engine has failed. NULL is fine. */
void gw_am_close(gw_am *am);

/* listens: accept messages from that team rank from now on; false: accept none after the current one. */
void gw_am_listen(gw_am *am, int peer, bool listens);
/* Sets whether a caller waits for a message of that rank, so that its deadline runs. */
void gw_am_expect(gw_am *am, int peer, bool expected, gw_time now);
/* data is lent until events.sent. */
gw_status gw_am_send(gw_am *am, int to, const gw_am_message *message, const void *data, gw_time now, gw_error *error);

bool gw_am_poll(gw_am *am, gw_time now, gw_error *error); /* true if anything moved */
bool gw_am_idle(const gw_am *am);                         /* nothing is in flight, and no peer is listened to */

#endif
