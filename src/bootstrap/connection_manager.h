/* connection_manager.h - the connection manager of a rank: it listens, dials, and hands out sockets whose other end has
 * proved that it knows the token.
 *
 * Polled and non-blocking. One thread (the rank's progress thread, or the one that runs the rendezvous before it
 * starts) calls everything here but gw_connections_dial, which any thread may call. Strangers are refused silently: a
 * connection that has not authenticated GW_CONNECTIONS_AUTH_TIMEOUT after it was accepted is closed; if there are more
 * than GW_CONNECTIONS_HALF_OPEN_MAX such connections, or than a quarter of the descriptors that the process may have
 * (RLIMIT_NOFILE), the oldest is closed.
 *
 * A connection goes to the handler of its purpose; if there is none yet, the connection waits (a peer may know the
 * table of endpoints earlier than we do). */
#ifndef GW_BOOTSTRAP_CONNECTION_MANAGER_H
#define GW_BOOTSTRAP_CONNECTION_MANAGER_H

#include "base/clock.h"
#include "bootstrap/address.h"
#include "bootstrap/auth.h"

#define GW_CONNECTIONS_AUTH_TIMEOUT (2 * GW_SECOND)
#define GW_CONNECTIONS_HALF_OPEN_MAX 512
#define GW_CONNECTIONS_LISTENERS_MAX 2
#define GW_DIAL_CANDIDATES_MAX 64

typedef struct gw_connections gw_connections;

/* Handles the connections of one purpose. Called from within gw_connections_poll, it may call anything here but
 * gw_connections_poll and gw_connections_close. */
typedef struct gw_connection_handler {
    void *ctx;
    /* The handler owns the socket (non-blocking, TCP_NODELAY) from now on; nothing beyond the handshake has been read
     * from it. peer->from is the rank at the other end; it meant to reach this rank. The handler checks world,
     * generation and, where it did not dial, security. keys: lent for the call, and wiped after it. */
    void (*established)(void *ctx, const gw_intro *peer, int fd, bool dialled, const gw_traffic_keys *keys);
    /* A dial failed; mine is the introduction given to it. detail is a clause ("connection refused by 10.0.0.1:29500").
     * NULL if the handler never dials. */
    void (*failed)(void *ctx, const gw_intro *mine, gw_status status, const char *detail);
} gw_connection_handler;

/* Makes this process's static key pair. The token is not kept, only the key derived from it and the job's name. */
gw_status gw_connections_open(gw_connections **connections, int rank, int world, const gw_token *token, const char *job,
                              gw_error *error);
/* Drops half-open and waiting connections and all dials, without callbacks. NULL is fine. */
void gw_connections_close(gw_connections *connections);

/* What this rank's strategy line asks for; the default is auto. Its introductions say so. Called before listening. */
void gw_connections_ask(gw_connections *connections, gw_security_choice asked);
gw_security_choice gw_connections_asked(const gw_connections *connections);
/* The static key by which the others know this rank. */
const uint8_t *gw_connections_public_key(const gw_connections *connections);
/* From now on a control or data connection of rank r counts only if it proved the r-th of `world` static keys. Until
 * then any process that knows the token can claim to be any rank. The rendezvous calls it. */
gw_status gw_connections_trust(gw_connections *connections, const uint8_t (*public_keys)[GW_KEY_BYTES], int world,
                               gw_error *error);

/* Listens at the first free port of low..high (0..0: any). */
gw_status gw_connections_listen(gw_connections *connections, const gw_address *address, int low, int high,
                                gw_error *error);
/* The same with an inherited socket that listens on such a port; on success the connection manager owns it. */
gw_status gw_connections_adopt(gw_connections *connections, int fd, int low, int high, gw_error *error);
/* The address of the n-th listener, port included; NULL: there is none. */
const gw_address *gw_connections_address(const gw_connections *connections, int listener);

/* Sets the handler of a purpose. NULL: connections of this purpose wait until there is a handler (again). */
void gw_connections_serve(gw_connections *connections, gw_purpose purpose, const gw_connection_handler *handler);
/* From now on connections of this purpose are closed. */
void gw_connections_refuse(gw_connections *connections, gw_purpose purpose);

/* Connects to the first of count addresses where rank mine->to answers, and introduces itself. Peers may start later:
 * refused and broken connections are tried again, in turn, until the deadline. With a single address, a peer that does
 * not know the token ends the dial at once. Exactly one callback follows a GW_OK. From any thread. */
gw_status gw_connections_dial(gw_connections *connections, const gw_address *addresses, int count, const gw_intro *mine,
                              gw_time deadline, gw_error *error);

/* The same with one address of a rank that has been listening there: when its host refuses the connection again and
 * again, its process has ended or closed its connection manager, and the dial fails with GW_PEER_LOST. A host that is
 * silent, unreachable or breaks the connection later proves nothing. */
gw_status gw_connections_dial_again(gw_connections *connections, const gw_address *address, const gw_intro *mine,
                                    gw_time deadline, gw_error *error);

/* Makes all progress that is possible. True if there was any. */
bool gw_connections_poll(gw_connections *connections, gw_time now);
/* Becomes readable when gw_connections_poll has something to do. */
int gw_connections_fd(const gw_connections *connections);
/* When gw_connections_poll must be called at the latest; UINT64_MAX: whenever. */
gw_time gw_connections_next_deadline(const gw_connections *connections);

/* A key of the job for another use: see gw_auth_derive. */
gw_status gw_connections_derive_key(const gw_connections *connections, const char *label,
                                    uint8_t key[GW_AUTH_KEY_BYTES], gw_error *error);
int gw_connections_rank(const gw_connections *connections);
/* Whether a connection could not be opened or accepted because the process had no descriptors left. */
bool gw_connections_starved(const gw_connections *connections);
uint64_t gw_connections_strangers(const gw_connections *connections); /* refused so far */

#endif
