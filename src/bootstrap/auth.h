/* auth.h - how two ranks prove to each other that they belong to the job, and state the purpose of the connection.
 *
 *     client                                          server
 *     magic, version, nonce C            ------>
 *                                        <------      nonce S, HMAC(key, "server" C S)
 *     HMAC(key, "client" C S)            ------>
 *     introduction, HMAC(.. C S intro)   ------>
 *                                        <------      introduction, HMAC(.. C S intro)
 *
 * HMAC-SHA256; the key is derived from the job's token and name. Every proof covers both nonces, so none can be
 * replayed, and has its own label, so none can be reflected. Neither side interprets anything else before it has
 * verified the other's proof. A pure state machine: bytes in, bytes out, no clock, no I/O; one thread at a time. It
 * never takes a byte beyond the handshake, so the socket can be handed over as it is. */
#ifndef GW_BOOTSTRAP_AUTH_H
#define GW_BOOTSTRAP_AUTH_H

#include "base/status.h"
#include "bootstrap/token.h"

#define GW_AUTH_KEY_BYTES 32
#define GW_AUTH_NONCE_BYTES 32
#define GW_AUTH_IN_MAX 96   /* bytes of the longest message */
#define GW_AUTH_OUT_MAX 160 /* bytes of all that a side sends */
#define GW_INTRO_BYTES 24
#define GW_WORLD_MAX (1 << 20)
#define GW_STREAM_MAX 1024

typedef enum gw_purpose {
    GW_PURPOSE_JOIN = 1, /* to rank 0: rendezvous */
    GW_PURPOSE_CONTROL,  /* heartbeats, aborts */
    GW_PURPOSE_DATA,     /* frames */
    GW_PURPOSES
} gw_purpose;

/* A side's introduction: its rank and the purpose of the connection. The server answers with the client's purpose,
 * generation and stream. */
typedef struct gw_intro {
    gw_purpose purpose;
    int from; /* rank of the sender, below world */
    int to;   /* rank that it means to reach */
    int world;
    uint32_t generation; /* of the communicator's links: see transport.h, reset */
    uint32_t stream;     /* number of the connection among those of this pair, below GW_STREAM_MAX */
} gw_intro;

typedef enum gw_auth_state {
    GW_AUTH_HELLO,     /* server waits for magic, version, nonce */
    GW_AUTH_CHALLENGE, /* client waits for nonce and proof */
    GW_AUTH_PROOF,     /* server waits for the proof */
    GW_AUTH_INTRO,     /* both wait for the other's introduction */
    GW_AUTH_DONE,
    GW_AUTH_FAILED,
} gw_auth_state;

typedef struct gw_auth {
    gw_auth_state state;
    bool server;
    uint8_t key[GW_AUTH_KEY_BYTES];
    uint8_t client_nonce[GW_AUTH_NONCE_BYTES], server_nonce[GW_AUTH_NONCE_BYTES];
    gw_intro mine, peer; /* peer: valid when DONE */
    uint8_t in[GW_AUTH_IN_MAX], out[GW_AUTH_OUT_MAX];
    size_t in_have, out_have, out_sent; /* bytes */
} gw_auth;

/* The key of a job: jobs of one user that share a token but not a name are strangers to each other. */
gw_status gw_auth_key(const gw_token *token, const char *job, uint8_t key[GW_AUTH_KEY_BYTES], gw_error *error);
/* A key for another use of the job's secret, named by label. It reveals nothing about the job's key. */
gw_status gw_auth_derive(const uint8_t key[GW_AUTH_KEY_BYTES], const char *label, uint8_t derived[GW_AUTH_KEY_BYTES],
                         gw_error *error);
/* 32 random bytes; false if there are none. */
bool gw_auth_nonce(uint8_t nonce[GW_AUTH_NONCE_BYTES]);

/* nonce must be fresh. mine: this side's introduction; on the server only its `from` and `world` are used. */
void gw_auth_begin(gw_auth *auth, bool server, const uint8_t key[GW_AUTH_KEY_BYTES],
                   const uint8_t nonce[GW_AUTH_NONCE_BYTES], const gw_intro *mine);
/* How many bytes to read from the peer at most, now; 0 when done or failed. */
size_t gw_auth_wants(const gw_auth *auth);
/* Takes count <= gw_auth_wants() bytes. GW_DENIED: the peer does not know the key; GW_PROTOCOL: it does, but its
 * introduction is invalid; GW_SYSTEM: libcrypto failed. After a failure nothing more is taken or given. */
gw_status gw_auth_take(gw_auth *auth, const uint8_t *bytes, size_t count);
/* The bytes to send now; gw_auth_sent reports how many of them were sent. */
const uint8_t *gw_auth_output(const gw_auth *auth, size_t *count);
void gw_auth_sent(gw_auth *auth, size_t count);
/* Both introductions are exchanged and ours is completely sent: auth->peer is valid. */
bool gw_auth_done(const gw_auth *auth);

void gw_intro_write(const gw_intro *intro, uint8_t bytes[GW_INTRO_BYTES]);
/* False, and *intro untouched, if a field is out of range. */
bool gw_intro_read(gw_intro *intro, const uint8_t bytes[GW_INTRO_BYTES]);

#endif
