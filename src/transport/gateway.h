/* gateway.h - the one door of a rank: it listens, dials, and hands out sockets whose other end has proved the token.
 *
 * Polled and non-blocking. One thread (the rank's progress thread, or whoever runs the rendezvous before it starts)
 * calls everything here but gw_gateway_dial, which any thread may call. Strangers are refused silently: a connection
 * that has not proved itself GW_GATEWAY_PATIENCE after it was accepted is closed, and of more than
 * GW_GATEWAY_HALF_OPEN_MAX such the oldest goes first.
 *
 * A connection goes to the room that serves its purpose; where none does yet, it waits (a peer may know the table of
 * endpoints earlier than we do). */
#ifndef GW_TRANSPORT_GATEWAY_H
#define GW_TRANSPORT_GATEWAY_H

#include "base/clock.h"
#include "transport/address.h"
#include "transport/auth.h"

#define GW_GATEWAY_PATIENCE (2 * GW_SECOND)
#define GW_GATEWAY_HALF_OPEN_MAX 512
#define GW_GATEWAY_LISTENERS_MAX 2
#define GW_DIAL_CANDIDATES_MAX 64

typedef struct gw_gateway gw_gateway;

/* Called from within gw_gateway_poll, and may call anything here but gw_gateway_poll and gw_gateway_close. */
typedef struct gw_gateway_room {
    void *ctx;
    /* The socket (non-blocking, TCP_NODELAY) is the room's from now on; nothing beyond the handshake has been read
     * from it. peer->from is who is at the other end; it meant to reach this rank. World and generation are for the
     * room to check. */
    void (*established)(void *ctx, const gw_intro *peer, int fd, bool dialled);
    /* A dial came to nothing; mine is the introduction given to it. detail is a clause ("connection refused by
     * 10.0.0.1:29500"). NULL where the room never dials. */
    void (*failed)(void *ctx, const gw_intro *mine, gw_status status, const char *detail);
} gw_gateway_room;

/* The token is not kept, only the key derived from it and the job's name. */
gw_status gw_gateway_open(gw_gateway **gateway, int rank, int world, const gw_token *token, const char *job,
                          gw_error *error);
/* Drops what is half-open, waiting or being dialled, without callbacks. NULL is fine. */
void gw_gateway_close(gw_gateway *gateway);

/* Listens at the first free port of low..high (0..0: any). */
gw_status gw_gateway_listen(gw_gateway *gateway, const gw_address *address, int low, int high, gw_error *error);
/* The same with an inherited socket that listens at such a port; the gateway owns it from then on, if it succeeds. */
gw_status gw_gateway_adopt(gw_gateway *gateway, int fd, int low, int high, gw_error *error);
/* Of the n-th listener, port included; NULL: there is none. */
const gw_address *gw_gateway_address(const gw_gateway *gateway, int listener);

/* NULL: connections of this purpose wait until it is served (again). */
void gw_gateway_serve(gw_gateway *gateway, gw_purpose purpose, const gw_gateway_room *room);
/* From now on connections of this purpose are closed. */
void gw_gateway_shut(gw_gateway *gateway, gw_purpose purpose);

/* Connects to the first of count addresses where rank mine->to answers, and introduces itself. Peers may start later:
 * refused and broken connections are tried again, in turn, until the deadline. With a single address a peer that does
 * not know the token ends it at once. Exactly one callback follows a GW_OK. From any thread. */
gw_status gw_gateway_dial(gw_gateway *gateway, const gw_address *addresses, int count, const gw_intro *mine,
                          gw_time deadline, gw_error *error);

/* The same with one address of a rank that has been listening there: when its host refuses the connection, its process
 * has ended or closed the gateway, and the dial fails at once with GW_PEER_LOST. A host that is silent, unreachable or
 * breaks the connection later proves nothing. */
gw_status gw_gateway_dial_again(gw_gateway *gateway, const gw_address *address, const gw_intro *mine, gw_time deadline,
                                gw_error *error);

/* Moves what can be moved. True if anything did. */
bool gw_gateway_poll(gw_gateway *gateway, gw_time now);
/* Becomes readable when gw_gateway_poll has something to do. */
int gw_gateway_fd(const gw_gateway *gateway);
/* When gw_gateway_poll must be called at the latest; UINT64_MAX: whenever. */
gw_time gw_gateway_next_deadline(const gw_gateway *gateway);

/* A key of the job's for another use: see gw_auth_derive. */
gw_status gw_gateway_derive(const gw_gateway *gateway, const char *label, uint8_t key[GW_AUTH_KEY_BYTES],
                            gw_error *error);
int gw_gateway_rank(const gw_gateway *gateway);
uint64_t gw_gateway_strangers(const gw_gateway *gateway); /* refused so far */

#endif
