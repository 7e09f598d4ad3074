/* seal.c - see seal.h. */
#include "bootstrap/seal.h"

#include "base/little_endian.h"

#include <assert.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>

struct gw_seal {
    EVP_CIPHER_CTX *context;
    gw_security security;
    uint64_t records; /* so far */
    uint8_t iv[GW_SEAL_IV_BYTES];
};

static EVP_CIPHER_CTX *make_context(const gw_seal_key *key) {
    EVP_CIPHER_CTX *context = EVP_CIPHER_CTX_new();
    if (context && EVP_CipherInit_ex(context, EVP_aes_128_gcm(), NULL, key->key, key->iv, 1) == 1) return context;
    EVP_CIPHER_CTX_free(context);
    return NULL;
}

gw_status gw_seal_make(gw_seal **out, gw_security security, const gw_seal_key *key, gw_error *error) {
    assert(security == GW_SECURITY_MAC || security == GW_SECURITY_TLS);
    gw_seal *seal = calloc(1, sizeof *seal);
    if (seal) seal->context = make_context(key);
    if (!seal || !seal->context) {
        free(seal);
        return gw_fail(error, GW_SYSTEM, "libcrypto has no AES-128-GCM to protect a connection with");
    }
    seal->security = security;
    memcpy(seal->iv, key->iv, sizeof seal->iv);
    *out = seal;
    return GW_OK;
}

void gw_seal_free(gw_seal *seal) {
    if (!seal) return;
    EVP_CIPHER_CTX_free(seal->context); /* wipes the key */
    OPENSSL_cleanse(seal, sizeof *seal);
    free(seal);
}

/* Sets the nonce of the next record, and passes its bytes through libcrypto. */
static bool pass(gw_seal *seal, bool encrypts, const void *in, void *out, size_t bytes) {
    uint8_t nonce[GW_SEAL_IV_BYTES], number[8];
    bool tls = seal->security == GW_SECURITY_TLS;
    int done;
    assert(bytes <= GW_SEAL_RECORD_MAX);
    memcpy(nonce, seal->iv, sizeof nonce);
    gw_le_put(number, seal->records++, 8);
    for (size_t i = 0; i < sizeof number; i++) nonce[GW_SEAL_IV_BYTES - 8 + i] ^= number[i];
    if (EVP_CipherInit_ex(seal->context, NULL, NULL, NULL, nonce, encrypts) != 1) return false;
    return bytes == 0 || EVP_CipherUpdate(seal->context, tls ? out : NULL, &done, in, (int)bytes) == 1;
}

bool gw_seal_protect(gw_seal *seal, const void *in, void *out, size_t bytes, uint8_t tag[GW_SEAL_TAG_BYTES]) {
    uint8_t rest[GW_SEAL_TAG_BYTES];
    int done;
    return pass(seal, true, in, out, bytes) && EVP_CipherFinal_ex(seal->context, rest, &done) == 1 &&
           EVP_CIPHER_CTX_ctrl(seal->context, EVP_CTRL_AEAD_GET_TAG, GW_SEAL_TAG_BYTES, tag) == 1;
}

bool gw_seal_verify(gw_seal *seal, const void *in, void *out, size_t bytes, const uint8_t tag[GW_SEAL_TAG_BYTES]) {
    uint8_t rest[GW_SEAL_TAG_BYTES], expected[GW_SEAL_TAG_BYTES];
    int done;
    memcpy(expected, tag, sizeof expected);
    return pass(seal, false, in, out, bytes) &&
           EVP_CIPHER_CTX_ctrl(seal->context, EVP_CTRL_AEAD_SET_TAG, GW_SEAL_TAG_BYTES, expected) == 1 &&
           EVP_CipherFinal_ex(seal->context, rest, &done) == 1;
}
