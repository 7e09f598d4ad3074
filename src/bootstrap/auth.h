/* auth.h - how two ranks prove to each other that they belong to the job, state the purpose of the connection, and come
 * to the keys that protect it.
 *
 *     client                                          server
 *     magic, version, nonce C            ------>
 *                                        <------      magic, version, nonce S
 *     ephemeral key, introduction,
 *     HMAC(job key, all so far)          ------>
 *                                        <------      yes, ephemeral key, introduction, proof of the session
 *     proof of the session               ------>
 *
 * The client proves itself first: a stranger who connects gets a nonce, and nothing to guess the token with. The server
 * makes no key and computes no agreement before it has verified the HMAC; if that is wrong it says no, in one byte.
 *
 * Each process has a static X25519 pair, and each handshake an ephemeral one on either side. HKDF-SHA256 makes the
 * session's proofs and traffic keys from both secrets (static with static, ephemeral with ephemeral), the job's key
 * (HMAC-SHA256 of token and job name) and the transcript. So a proof shows the token and the static key that the
 * introduction names; recorded traffic stays closed when token and static keys leak later; and a rank cannot pose as
 * another, once the static keys of all ranks are known (gw_connections_trust).
 *
 * A pure state machine: bytes in, bytes out, no clock, no I/O; one thread at a time. It never takes a byte beyond the
 * handshake, so the socket can be handed over as it is. */
#ifndef GW_BOOTSTRAP_AUTH_H
#define GW_BOOTSTRAP_AUTH_H

#include "base/status.h"
#include "bootstrap/key_exchange.h"
#include "bootstrap/security.h"
#include "bootstrap/token.h"

#define GW_AUTH_KEY_BYTES 32
#define GW_AUTH_NONCE_BYTES 32
#define GW_AUTH_PROOF_BYTES 32
#define GW_AUTH_VERSION 2
#define GW_INTRO_BYTES 60
#define GW_AUTH_HELLO_BYTES (12 + GW_AUTH_NONCE_BYTES)                             /* of either side */
#define GW_AUTH_CLIENT_BYTES (GW_KEY_BYTES + GW_INTRO_BYTES + GW_AUTH_PROOF_BYTES) /* the client's second message */
#define GW_AUTH_SERVER_BYTES (1 + GW_AUTH_CLIENT_BYTES)                            /* the server's second message */
#define GW_AUTH_IN_MAX GW_AUTH_SERVER_BYTES                                        /* bytes of the longest message */
/* bytes of all that a side sends */
#define GW_AUTH_OUT_MAX (GW_AUTH_HELLO_BYTES + GW_AUTH_SERVER_BYTES + GW_AUTH_PROOF_BYTES)
#define GW_WORLD_MAX (1 << 20)
#define GW_STREAM_MAX 1024

typedef enum gw_purpose {
    GW_PURPOSE_JOIN = 1, /* to rank 0: rendezvous */
    GW_PURPOSE_CONTROL,  /* heartbeats, aborts */
    GW_PURPOSE_DATA,     /* frames */
    GW_PURPOSES
} gw_purpose;

/* A side's introduction: its rank and the purpose of the connection. The server answers with the client's purpose,
 * generation, stream and security. */
typedef struct gw_intro {
    gw_purpose purpose;
    int from; /* rank of the sender, below world */
    int to;   /* rank that it means to reach */
    int world;
    uint32_t generation;              /* of the communicator's links: see transport.h, reset */
    uint32_t stream;                  /* number of the connection among those of this pair, below GW_STREAM_MAX */
    gw_security_choice asked;         /* what the sender's strategy line asks for */
    gw_security security;             /* of this connection; the client's choice, which the server's handler checks */
    uint8_t public_key[GW_KEY_BYTES]; /* the sender's static key: this connection proves that it has the pair */
} gw_intro;

typedef enum gw_auth_state {
    GW_AUTH_HELLO,     /* server waits for magic, version, nonce */
    GW_AUTH_CHALLENGE, /* client waits for the same */
    GW_AUTH_INTRO,     /* both wait for the other's second message */
    GW_AUTH_PROOF,     /* server waits for the last proof */
    GW_AUTH_DONE,
    GW_AUTH_FAILED,
} gw_auth_state;

/* What stays the same in all handshakes of a process: the job's key and its own static pair. */
typedef struct gw_identity {
    uint8_t key[GW_AUTH_KEY_BYTES];
    gw_key_pair pair;
} gw_identity;

typedef struct gw_auth {
    gw_auth_state state;
    bool server;
    const gw_identity *identity; /* lent */
    gw_key_pair ephemeral;
    gw_intro mine, peer;  /* peer: valid when DONE */
    gw_traffic_keys keys; /* valid when DONE */
    uint8_t nonce[GW_AUTH_NONCE_BYTES];
    uint8_t expected[GW_AUTH_PROOF_BYTES];                                            /* the client's last proof */
    uint8_t said[16 + 2 * GW_AUTH_HELLO_BYTES + 2 * (GW_KEY_BYTES + GW_INTRO_BYTES)]; /* a label, then the transcript */
    size_t said_have;
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

/* nonce must be fresh. mine: this side's introduction without its public key; on the server only its `from`, `world`
 * and `asked` are used. */
void gw_auth_begin(gw_auth *auth, bool server, const gw_identity *identity, const uint8_t nonce[GW_AUTH_NONCE_BYTES],
                   const gw_intro *mine);
/* How many bytes to read from the peer at most, now; 0 when done or failed. */
size_t gw_auth_wants(const gw_auth *auth);
/* Takes count <= gw_auth_wants() bytes. GW_DENIED: the peer does not know the job's key or its own static pair, or says
 * that we do not; GW_MISMATCH: its handshake has another version; GW_PROTOCOL: it knows the key, but its introduction
 * is invalid; GW_SYSTEM: libcrypto failed. After a failure nothing more is taken, and at most a refusal is to be sent.
 */
gw_status gw_auth_take(gw_auth *auth, const uint8_t *bytes, size_t count);
/* The bytes to send now; gw_auth_sent reports how many of them were sent. */
const uint8_t *gw_auth_output(const gw_auth *auth, size_t *count);
void gw_auth_sent(gw_auth *auth, size_t count);
/* Both sides are proved and all of ours is sent: auth->peer and auth->keys are valid. */
bool gw_auth_done(const gw_auth *auth);

void gw_intro_write(const gw_intro *intro, uint8_t bytes[GW_INTRO_BYTES]);
/* False, and *intro untouched, if a field is out of range. */
bool gw_intro_read(gw_intro *intro, const uint8_t bytes[GW_INTRO_BYTES]);

#endif
