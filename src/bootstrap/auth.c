/* auth.c - see auth.h. */
#include "bootstrap/auth.h"

#include "base/little_endian.h"

#include <assert.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include <string.h>

#define LABEL_BYTES 16
#define MAGIC_BYTES 8
#define PREFIX_BYTES sizeof hello_prefix

static const uint8_t hello_prefix[12] = {'G', 'R', 'A', 'D', 'W', 'I', 'R', 'E', GW_AUTH_VERSION, 0, 0, 0};
enum { REFUSED, ACCEPTED }; /* the first byte of the server's second message */
enum { AT_ASKED = 24, AT_SECURITY = 25, AT_ZERO = 26, AT_PUBLIC_KEY = 28 }; /* in an introduction */

bool gw_auth_nonce(uint8_t nonce[GW_AUTH_NONCE_BYTES]) { return RAND_bytes(nonce, GW_AUTH_NONCE_BYTES) == 1; }

static bool hmac(const uint8_t *key, size_t key_bytes, const uint8_t *data, size_t bytes,
                 uint8_t out[GW_AUTH_PROOF_BYTES]) {
    unsigned length = 0;
    return HMAC(EVP_sha256(), key, (int)key_bytes, data, bytes, out, &length) && length == GW_AUTH_PROOF_BYTES;
}

gw_status gw_auth_key(const gw_token *token, const char *job, uint8_t key[GW_AUTH_KEY_BYTES], gw_error *error) {
    if (!hmac((const uint8_t *)token->text, strlen(token->text), (const uint8_t *)job, strlen(job), key))
        return gw_fail(error, GW_SYSTEM, "libcrypto cannot compute HMAC-SHA256: check its installation");
    return GW_OK;
}

gw_status gw_auth_derive(const uint8_t key[GW_AUTH_KEY_BYTES], const char *label, uint8_t derived[GW_AUTH_KEY_BYTES],
                         gw_error *error) {
    uint8_t text[64] = "derived ";
    size_t bytes = strlen((char *)text) + strlen(label);
    assert(bytes < sizeof text);
    memcpy(text + strlen((char *)text), label, strlen(label));
    if (!hmac(key, GW_AUTH_KEY_BYTES, text, bytes, derived))
        return gw_fail(error, GW_SYSTEM, "libcrypto cannot compute HMAC-SHA256: check its installation");
    return GW_OK;
}

void gw_intro_write(const gw_intro *intro, uint8_t bytes[GW_INTRO_BYTES]) {
    gw_le_put(bytes, (uint32_t)intro->purpose, 4);
    gw_le_put(bytes + 4, (uint32_t)intro->from, 4);
    gw_le_put(bytes + 8, (uint32_t)intro->to, 4);
    gw_le_put(bytes + 12, (uint32_t)intro->world, 4);
    gw_le_put(bytes + 16, intro->generation, 4);
    gw_le_put(bytes + 20, intro->stream, 4);
    bytes[AT_ASKED] = (uint8_t)intro->asked;
    bytes[AT_SECURITY] = (uint8_t)intro->security;
    gw_le_put(bytes + AT_ZERO, 0, 2);
    memcpy(bytes + AT_PUBLIC_KEY, intro->public_key, GW_KEY_BYTES);
}

bool gw_intro_read(gw_intro *intro, const uint8_t bytes[GW_INTRO_BYTES]) {
    uint32_t purpose = gw_le_get32(bytes), from = gw_le_get32(bytes + 4), to = gw_le_get32(bytes + 8);
    uint32_t world = gw_le_get32(bytes + 12), stream = gw_le_get32(bytes + 20);
    if (purpose < GW_PURPOSE_JOIN || purpose >= GW_PURPOSES || world < 1 || world > GW_WORLD_MAX) return false;
    /* `to` may lie beyond the sender's own world: the rendezvous reports that ranks disagree about its size. */
    if (from >= world || to >= GW_WORLD_MAX || stream >= GW_STREAM_MAX) return false;
    if (bytes[AT_ASKED] >= GW_SECURITY_CHOICES || bytes[AT_SECURITY] >= GW_SECURITIES) return false;
    if (bytes[AT_ZERO] || bytes[AT_ZERO + 1]) return false;
    *intro = (gw_intro){.purpose = (gw_purpose)purpose,
                        .from = (int)from,
                        .to = (int)to,
                        .world = (int)world,
                        .generation = gw_le_get32(bytes + 16),
                        .stream = stream,
                        .asked = (gw_security_choice)bytes[AT_ASKED],
                        .security = (gw_security)bytes[AT_SECURITY]};
    memcpy(intro->public_key, bytes + AT_PUBLIC_KEY, GW_KEY_BYTES);
    return true;
}

static void append(gw_auth *auth, const uint8_t *bytes, size_t count) {
    assert(auth->out_have + count <= sizeof auth->out);
    memcpy(auth->out + auth->out_have, bytes, count);
    auth->out_have += count;
}

/* Adds what either side has said to the transcript. */
static void note(gw_auth *auth, const uint8_t *bytes, size_t count) {
    assert(auth->said_have + count <= sizeof auth->said);
    memcpy(auth->said + auth->said_have, bytes, count);
    auth->said_have += count;
}

static void say_hello(gw_auth *auth) {
    uint8_t hello[GW_AUTH_HELLO_BYTES];
    memcpy(hello, hello_prefix, PREFIX_BYTES);
    memcpy(hello + PREFIX_BYTES, auth->nonce, GW_AUTH_NONCE_BYTES);
    append(auth, hello, sizeof hello);
    note(auth, hello, sizeof hello);
}

void gw_auth_begin(gw_auth *auth, bool server, const gw_identity *identity, const uint8_t nonce[GW_AUTH_NONCE_BYTES],
                   const gw_intro *mine) {
    memset(auth, 0, sizeof *auth);
    auth->server = server;
    auth->state = server ? GW_AUTH_HELLO : GW_AUTH_CHALLENGE;
    auth->identity = identity;
    auth->mine = *mine;
    memcpy(auth->mine.public_key, identity->pair.public_key, GW_KEY_BYTES);
    memcpy(auth->nonce, nonce, GW_AUTH_NONCE_BYTES);
    auth->said_have = LABEL_BYTES;
    if (!server) say_hello(auth);
}

static size_t message_bytes(const gw_auth *auth) {
    switch (auth->state) {
    case GW_AUTH_HELLO:
    case GW_AUTH_CHALLENGE: return GW_AUTH_HELLO_BYTES;
    case GW_AUTH_INTRO: return auth->server ? GW_AUTH_CLIENT_BYTES : GW_AUTH_SERVER_BYTES;
    case GW_AUTH_PROOF: return GW_AUTH_PROOF_BYTES;
    case GW_AUTH_DONE:
    case GW_AUTH_FAILED: break;
    }
    return 0;
}

size_t gw_auth_wants(const gw_auth *auth) { return message_bytes(auth) - auth->in_have; }

const uint8_t *gw_auth_output(const gw_auth *auth, size_t *count) {
    *count = auth->out_have - auth->out_sent;
    return auth->out + auth->out_sent;
}

void gw_auth_sent(gw_auth *auth, size_t count) {
    auth->out_sent += count;
    assert(auth->out_sent <= auth->out_have);
    if (auth->out_sent == auth->out_have) auth->out_sent = auth->out_have = 0;
}

bool gw_auth_done(const gw_auth *auth) { return auth->state == GW_AUTH_DONE && auth->out_have == 0; }

static gw_status verify(const uint8_t expected[GW_AUTH_PROOF_BYTES], const uint8_t *claimed) {
    return CRYPTO_memcmp(expected, claimed, GW_AUTH_PROOF_BYTES) == 0 ? GW_OK : GW_DENIED;
}

/* Over the transcript as it is now. */
static bool prove_key(gw_auth *auth, uint8_t proof[GW_AUTH_PROOF_BYTES]) {
    static const char label[LABEL_BYTES] = "client";
    memcpy(auth->said, label, LABEL_BYTES);
    return hmac(auth->identity->key, GW_AUTH_KEY_BYTES, auth->said, auth->said_have, proof);
}

/* The ephemeral key and the introduction of this side: said, and to be sent. */
static bool introduce(gw_auth *auth) {
    uint8_t message[GW_KEY_BYTES + GW_INTRO_BYTES];
    if (!gw_key_pair_make(&auth->ephemeral)) return false;
    memcpy(message, auth->ephemeral.public_key, GW_KEY_BYTES);
    gw_intro_write(&auth->mine, message + GW_KEY_BYTES);
    append(auth, message, sizeof message);
    note(auth, message, sizeof message);
    return true;
}

typedef struct session {
    uint8_t secret[2 * GW_KEY_BYTES]; /* ephemeral with ephemeral, static with static */
    uint8_t salt[GW_KEY_BYTES];       /* of the job's key */
    uint8_t said[LABEL_BYTES + 32];   /* a label, then the transcript's SHA-256 */
} session;

static bool expand(session *s, const char *label, void *out, size_t count) {
    memset(s->said, 0, LABEL_BYTES);
    memcpy(s->said, label, strlen(label));
    return gw_key_derive(s->secret, sizeof s->secret, s->salt, s->said, sizeof s->said, out, count);
}

/* theirs: the peer's ephemeral key, and its introduction. Makes the traffic keys, and the proof of either side. */
static gw_status make_session(gw_auth *auth, const uint8_t *theirs, uint8_t server_proof[GW_AUTH_PROOF_BYTES]) {
    session s;
    const uint8_t *their_static = theirs + GW_KEY_BYTES + AT_PUBLIC_KEY;
    gw_seal_key *by_client = auth->server ? &auth->keys.receive : &auth->keys.send;
    gw_seal_key *by_server = auth->server ? &auth->keys.send : &auth->keys.receive;
    auth->keys.security = auth->mine.security;
    bool agreed = gw_key_agree(&auth->ephemeral, theirs, s.secret) &&
                  gw_key_agree(&auth->identity->pair, their_static, s.secret + GW_KEY_BYTES);
    bool ok = agreed && gw_auth_derive(auth->identity->key, "session", s.salt, NULL) == GW_OK &&
              EVP_Digest(auth->said + LABEL_BYTES, auth->said_have - LABEL_BYTES, s.said + LABEL_BYTES, NULL,
                         EVP_sha256(), NULL) == 1 &&
              expand(&s, "server proof", server_proof, GW_AUTH_PROOF_BYTES) &&
              expand(&s, "client proof", auth->expected, GW_AUTH_PROOF_BYTES) &&
              expand(&s, "client sends", by_client, sizeof *by_client) &&
              expand(&s, "server sends", by_server, sizeof *by_server);
    OPENSSL_cleanse(&s, sizeof s);
    OPENSSL_cleanse(&auth->ephemeral, sizeof auth->ephemeral);
    return ok ? GW_OK : agreed ? GW_SYSTEM : GW_DENIED; /* an honest key agrees with every other */
}

static gw_status on_hello(gw_auth *auth) {
    note(auth, auth->in, GW_AUTH_HELLO_BYTES);
    say_hello(auth);
    auth->state = GW_AUTH_INTRO;
    return GW_OK;
}

static gw_status on_challenge(gw_auth *auth) {
    uint8_t proof[GW_AUTH_PROOF_BYTES];
    note(auth, auth->in, GW_AUTH_HELLO_BYTES);
    if (!introduce(auth) || !prove_key(auth, proof)) return GW_SYSTEM;
    append(auth, proof, sizeof proof);
    auth->state = GW_AUTH_INTRO;
    return GW_OK;
}

/* The server takes over what the client has said about the connection. */
static void echo(gw_auth *auth) {
    auth->mine.purpose = auth->peer.purpose;
    auth->mine.to = auth->peer.from;
    auth->mine.generation = auth->peer.generation;
    auth->mine.stream = auth->peer.stream;
    auth->mine.security = auth->peer.security;
}

static gw_status on_client(gw_auth *auth) {
    uint8_t proof[GW_AUTH_PROOF_BYTES];
    const uint8_t accepted = ACCEPTED;
    note(auth, auth->in, GW_KEY_BYTES + GW_INTRO_BYTES);
    if (!prove_key(auth, proof)) return GW_SYSTEM;
    gw_status status = verify(proof, auth->in + GW_KEY_BYTES + GW_INTRO_BYTES);
    if (status != GW_OK) return status;
    if (!gw_intro_read(&auth->peer, auth->in + GW_KEY_BYTES)) return GW_PROTOCOL;
    echo(auth);
    append(auth, &accepted, 1);
    if (!introduce(auth)) return GW_SYSTEM;
    status = make_session(auth, auth->in, proof);
    append(auth, proof, sizeof proof);
    auth->state = GW_AUTH_PROOF;
    return status;
}

/* The server's introduction must answer ours. The caller checks by `from` that it is the rank we meant. */
static bool answers(const gw_intro *mine, const gw_intro *peer) {
    return peer->purpose == mine->purpose && peer->to == mine->from && peer->generation == mine->generation &&
           peer->stream == mine->stream && peer->security == mine->security;
}

static gw_status on_server(gw_auth *auth) {
    uint8_t proof[GW_AUTH_PROOF_BYTES];
    const uint8_t *message = auth->in + 1;
    note(auth, message, GW_KEY_BYTES + GW_INTRO_BYTES);
    gw_status status = make_session(auth, message, proof);
    if (status == GW_OK) status = verify(proof, message + GW_KEY_BYTES + GW_INTRO_BYTES);
    OPENSSL_cleanse(proof, sizeof proof);
    if (status != GW_OK) return status;
    if (!gw_intro_read(&auth->peer, message + GW_KEY_BYTES) || !answers(&auth->mine, &auth->peer)) return GW_PROTOCOL;
    append(auth, auth->expected, GW_AUTH_PROOF_BYTES);
    auth->state = GW_AUTH_DONE;
    return GW_OK;
}

static gw_status on_proof(gw_auth *auth) {
    gw_status status = verify(auth->expected, auth->in);
    if (status == GW_OK) auth->state = GW_AUTH_DONE;
    return status;
}

static gw_status advance(gw_auth *auth) {
    switch (auth->state) {
    case GW_AUTH_HELLO: return on_hello(auth);
    case GW_AUTH_CHALLENGE: return on_challenge(auth);
    case GW_AUTH_INTRO: return auth->server ? on_client(auth) : on_server(auth);
    case GW_AUTH_PROOF: return on_proof(auth);
    case GW_AUTH_DONE:
    case GW_AUTH_FAILED: break;
    }
    return GW_PROTOCOL;
}

/* The first bytes of a message already show a stranger, another version, or a refusal. */
static gw_status check_beginning(const gw_auth *auth) {
    bool hello = auth->state == GW_AUTH_HELLO || auth->state == GW_AUTH_CHALLENGE;
    size_t have = auth->in_have < PREFIX_BYTES ? auth->in_have : PREFIX_BYTES;
    size_t magic = have < MAGIC_BYTES ? have : MAGIC_BYTES;
    if (hello && memcmp(auth->in, hello_prefix, magic) != 0) return GW_DENIED;
    if (hello && memcmp(auth->in, hello_prefix, have) != 0) return GW_MISMATCH;
    if (auth->state == GW_AUTH_INTRO && !auth->server && auth->in[0] != ACCEPTED) return GW_DENIED;
    return GW_OK;
}

/* Leaves at most a refusal to be sent: the server's version to a client with another one, or no. */
static void fail(gw_auth *auth, gw_status status) {
    const uint8_t refused = REFUSED;
    bool hello = auth->state == GW_AUTH_HELLO, client = auth->state == GW_AUTH_INTRO;
    auth->in_have = auth->out_have = auth->out_sent = 0;
    auth->state = GW_AUTH_FAILED;
    if (auth->server && hello && status == GW_MISMATCH) append(auth, hello_prefix, PREFIX_BYTES);
    if (auth->server && client && status == GW_DENIED) append(auth, &refused, 1);
}

gw_status gw_auth_take(gw_auth *auth, const uint8_t *bytes, size_t count) {
    assert(count <= gw_auth_wants(auth));
    if (count == 0) return GW_OK;
    memcpy(auth->in + auth->in_have, bytes, count);
    auth->in_have += count;
    gw_status status = check_beginning(auth);
    if (status == GW_OK && auth->in_have == message_bytes(auth)) {
        status = advance(auth);
        auth->in_have = 0;
    }
    if (status != GW_OK) fail(auth, status);
    return status;
}
