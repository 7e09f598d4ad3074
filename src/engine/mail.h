/* mail.h - messages between two ranks of a team that neither has announced to the other: a letter says what comes, its
 * payload follows when the receiver lets it in. Between two ranks letters of one kind arrive in the order in which they
 * were sent; a later one of another kind may come first, and so may the payload of a later one. Made of
 * point-to-point operations, which the team may not carry otherwise.
 *
 * A polled machine, the driver's. Envelopes are kept and reused, so that in the long run nothing is allocated. */
#ifndef GW_ENGINE_MAIL_H
#define GW_ENGINE_MAIL_H

#include "engine/core.h"

#define GW_MAIL_KINDS 16

/* Goes over the wire as it is. */
typedef struct gw_letter {
    uint32_t kind;   /* modulo GW_MAIL_KINDS it says what waits for what; else it is the correspondents' business, as */
    uint32_t parcel; /* are parcel, round, step and growth */
    uint64_t round, step;
    float growth;
    uint32_t reserved;     /* 0 */
    uint64_t bytes;        /* of the payload; 0: there is none */
} gw_letter;

typedef struct gw_mail gw_mail;

/* Called from within gw_mail_poll. */
typedef struct gw_mail_events {
    void *ctx;
    /* Where the payload is to be put; NULL, with the error, where the letter makes no sense. Not called without one. */
    void *(*landing)(void *ctx, int from, const gw_letter *letter, gw_error *error);
    void (*arrived)(void *ctx, int from, const gw_letter *letter, gw_time now, gw_error *error); /* payload and all */
    void (*sent)(void *ctx, int to, const gw_letter *letter); /* its payload's memory may be used again */
} gw_mail_events;

gw_status gw_mail_open(gw_mail **mail, gw_core *core, gw_team *team, const gw_mail_events *events, gw_error *error);
/* Nothing is under way, or the engine has failed. NULL is fine. */
void gw_mail_close(gw_mail *mail);

/* Letters of that team rank are taken from now on, or no more after the one being handled. */
void gw_mail_listen(gw_mail *mail, int peer, bool listens);
/* Whether somebody waits for a letter of that rank, so that its deadline runs. */
void gw_mail_expect(gw_mail *mail, int peer, bool expected, gw_time now);
/* data stays the caller's until events.sent. */
gw_status gw_mail_send(gw_mail *mail, int to, const gw_letter *letter, const void *data, gw_time now, gw_error *error);

bool gw_mail_poll(gw_mail *mail, gw_time now, gw_error *error); /* true if anything moved */
bool gw_mail_quiet(const gw_mail *mail); /* nothing is on its way, and nobody is listened to */

#endif
