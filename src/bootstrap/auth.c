/* auth.c - see auth.h. */
#include "bootstrap/auth.h"

#include "base/little_endian.h"

#include <assert.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include <string.h>

#define PROOF_BYTES 32
#define HELLO_BYTES (sizeof hello_prefix + GW_AUTH_NONCE_BYTES)

static const uint8_t hello_prefix[12] = {'G', 'R', 'A', 'D', 'W', 'I', 'R', 'E', 1, 0, 0, 0}; /* magic, version 1 */

bool gw_auth_nonce(uint8_t nonce[GW_AUTH_NONCE_BYTES]) { return RAND_bytes(nonce, GW_AUTH_NONCE_BYTES) == 1; }

static bool hmac(const uint8_t *key, size_t key_bytes, const uint8_t *data, size_t bytes, uint8_t out[PROOF_BYTES]) {
    unsigned length = 0;
    return HMAC(EVP_sha256(), key, (int)key_bytes, data, bytes, out, &length) && length == PROOF_BYTES;
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

/* label (16 bytes, zero padded) | client nonce | server nonce | extra */
static bool proof(const gw_auth *auth, const char *label, const uint8_t *extra, size_t extra_bytes,
                  uint8_t out[PROOF_BYTES]) {
    uint8_t data[16 + 2 * GW_AUTH_NONCE_BYTES + GW_INTRO_BYTES] = {0};
    memcpy(data, label, strlen(label));
    memcpy(data + 16, auth->client_nonce, GW_AUTH_NONCE_BYTES);
    memcpy(data + 16 + GW_AUTH_NONCE_BYTES, auth->server_nonce, GW_AUTH_NONCE_BYTES);
    if (extra_bytes) memcpy(data + 16 + 2 * GW_AUTH_NONCE_BYTES, extra, extra_bytes);
    return hmac(auth->key, sizeof auth->key, data, 16 + 2 * GW_AUTH_NONCE_BYTES + extra_bytes, out);
}

void gw_intro_write(const gw_intro *intro, uint8_t bytes[GW_INTRO_BYTES]) {
    gw_le_put(bytes, (uint32_t)intro->purpose, 4);
    gw_le_put(bytes + 4, (uint32_t)intro->from, 4);
    gw_le_put(bytes + 8, (uint32_t)intro->to, 4);
    gw_le_put(bytes + 12, (uint32_t)intro->world, 4);
    gw_le_put(bytes + 16, intro->generation, 4);
    gw_le_put(bytes + 20, intro->stream, 4);
}

bool gw_intro_read(gw_intro *intro, const uint8_t bytes[GW_INTRO_BYTES]) {
    uint32_t purpose = gw_le_get32(bytes), from = gw_le_get32(bytes + 4), to = gw_le_get32(bytes + 8);
    uint32_t world = gw_le_get32(bytes + 12), stream = gw_le_get32(bytes + 20);
    if (purpose < GW_PURPOSE_JOIN || purpose >= GW_PURPOSES || world < 1 || world > GW_WORLD_MAX) return false;
    /* `to` may lie beyond the sender's own world: the rendezvous reports that ranks disagree about its size. */
    if (from >= world || to >= GW_WORLD_MAX || stream >= GW_STREAM_MAX) return false;
    *intro = (gw_intro){.purpose = (gw_purpose)purpose,
                        .from = (int)from,
                        .to = (int)to,
                        .world = (int)world,
                        .generation = gw_le_get32(bytes + 16),
                        .stream = stream};
    return true;
}

static void append(gw_auth *auth, const uint8_t *bytes, size_t count) {
    assert(auth->out_have + count <= sizeof auth->out);
    memcpy(auth->out + auth->out_have, bytes, count);
    auth->out_have += count;
}

void gw_auth_begin(gw_auth *auth, bool server, const uint8_t key[GW_AUTH_KEY_BYTES],
                   const uint8_t nonce[GW_AUTH_NONCE_BYTES], const gw_intro *mine) {
    memset(auth, 0, sizeof *auth);
    auth->server = server;
    auth->state = server ? GW_AUTH_HELLO : GW_AUTH_CHALLENGE;
    auth->mine = *mine;
    memcpy(auth->key, key, GW_AUTH_KEY_BYTES);
    memcpy(server ? auth->server_nonce : auth->client_nonce, nonce, GW_AUTH_NONCE_BYTES);
    if (!server) {
        append(auth, hello_prefix, sizeof hello_prefix);
        append(auth, nonce, GW_AUTH_NONCE_BYTES);
    }
}

static size_t message_bytes(const gw_auth *auth) {
    switch (auth->state) {
    case GW_AUTH_HELLO: return HELLO_BYTES;
    case GW_AUTH_CHALLENGE: return GW_AUTH_NONCE_BYTES + PROOF_BYTES;
    case GW_AUTH_PROOF: return PROOF_BYTES;
    case GW_AUTH_INTRO: return GW_INTRO_BYTES + PROOF_BYTES;
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

/* Appends our own introduction, which the same nonces bind to this session. */
static bool introduce(gw_auth *auth) {
    uint8_t message[GW_INTRO_BYTES + PROOF_BYTES];
    gw_intro_write(&auth->mine, message);
    if (!proof(auth, auth->server ? "server intro" : "client intro", message, GW_INTRO_BYTES, message + GW_INTRO_BYTES))
        return false;
    append(auth, message, sizeof message);
    return true;
}

static gw_status verify(const gw_auth *auth, const char *label, const uint8_t *extra, size_t extra_bytes,
                        const uint8_t *claimed) {
    uint8_t expected[PROOF_BYTES];
    if (!proof(auth, label, extra, extra_bytes, expected)) return GW_SYSTEM;
    gw_status status = CRYPTO_memcmp(expected, claimed, PROOF_BYTES) == 0 ? GW_OK : GW_DENIED;
    OPENSSL_cleanse(expected, sizeof expected);
    return status;
}

static gw_status on_hello(gw_auth *auth) {
    uint8_t mine[PROOF_BYTES];
    memcpy(auth->client_nonce, auth->in + sizeof hello_prefix, GW_AUTH_NONCE_BYTES);
    if (!proof(auth, "server", NULL, 0, mine)) return GW_SYSTEM;
    append(auth, auth->server_nonce, GW_AUTH_NONCE_BYTES);
    append(auth, mine, sizeof mine);
    auth->state = GW_AUTH_PROOF;
    return GW_OK;
}

static gw_status on_challenge(gw_auth *auth) {
    uint8_t mine[PROOF_BYTES];
    memcpy(auth->server_nonce, auth->in, GW_AUTH_NONCE_BYTES);
    gw_status status = verify(auth, "server", NULL, 0, auth->in + GW_AUTH_NONCE_BYTES);
    if (status != GW_OK) return status;
    if (!proof(auth, "client", NULL, 0, mine)) return GW_SYSTEM;
    append(auth, mine, sizeof mine);
    auth->state = GW_AUTH_INTRO;
    return introduce(auth) ? GW_OK : GW_SYSTEM;
}

static gw_status on_proof(gw_auth *auth) {
    gw_status status = verify(auth, "client", NULL, 0, auth->in);
    if (status == GW_OK) auth->state = GW_AUTH_INTRO;
    return status;
}

/* The server's introduction must answer ours. The caller checks by `from` that it is the rank we meant. */
static bool answers(const gw_intro *mine, const gw_intro *peer) {
    return peer->purpose == mine->purpose && peer->to == mine->from && peer->generation == mine->generation &&
           peer->stream == mine->stream;
}

static gw_status on_intro(gw_auth *auth) {
    const char *label = auth->server ? "client intro" : "server intro";
    gw_status status = verify(auth, label, auth->in, GW_INTRO_BYTES, auth->in + GW_INTRO_BYTES);
    if (status != GW_OK) return status;
    if (!gw_intro_read(&auth->peer, auth->in)) return GW_PROTOCOL;
    if (!auth->server && !answers(&auth->mine, &auth->peer)) return GW_PROTOCOL;
    if (auth->server) {
        auth->mine.purpose = auth->peer.purpose;
        auth->mine.to = auth->peer.from;
        auth->mine.generation = auth->peer.generation;
        auth->mine.stream = auth->peer.stream;
        if (!introduce(auth)) return GW_SYSTEM;
    }
    auth->state = GW_AUTH_DONE;
    return GW_OK;
}

static gw_status advance(gw_auth *auth) {
    switch (auth->state) {
    case GW_AUTH_HELLO: return on_hello(auth);
    case GW_AUTH_CHALLENGE: return on_challenge(auth);
    case GW_AUTH_PROOF: return on_proof(auth);
    case GW_AUTH_INTRO: return on_intro(auth);
    case GW_AUTH_DONE:
    case GW_AUTH_FAILED: break;
    }
    return GW_PROTOCOL;
}

gw_status gw_auth_take(gw_auth *auth, const uint8_t *bytes, size_t count) {
    assert(count <= gw_auth_wants(auth));
    if (count == 0) return GW_OK;
    memcpy(auth->in + auth->in_have, bytes, count);
    auth->in_have += count;
    gw_status status = GW_OK;
    if (auth->state == GW_AUTH_HELLO) { /* the first bytes already show a stranger */
        size_t prefix = auth->in_have < sizeof hello_prefix ? auth->in_have : sizeof hello_prefix;
        if (memcmp(auth->in, hello_prefix, prefix) != 0) status = GW_DENIED;
    }
    if (status == GW_OK && auth->in_have == message_bytes(auth)) {
        status = advance(auth);
        auth->in_have = 0;
    }
    if (status != GW_OK) {
        auth->state = GW_AUTH_FAILED;
        auth->in_have = auth->out_have = auth->out_sent = 0;
    }
    return status;
}
