/* key_exchange.c - see key_exchange.h. */
#include "bootstrap/key_exchange.h"

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/kdf.h>

bool gw_key_pair_make(gw_key_pair *pair) {
    size_t secret = GW_KEY_BYTES, public_key = GW_KEY_BYTES;
    EVP_PKEY *made = EVP_PKEY_Q_keygen(NULL, NULL, "X25519");
    bool ok = made && EVP_PKEY_get_raw_private_key(made, pair->secret, &secret) == 1 &&
              EVP_PKEY_get_raw_public_key(made, pair->public_key, &public_key) == 1;
    EVP_PKEY_free(made);
    return ok;
}

bool gw_key_agree(const gw_key_pair *mine, const uint8_t theirs[GW_KEY_BYTES], uint8_t shared[GW_KEY_BYTES]) {
    static const uint8_t zero[GW_KEY_BYTES];
    size_t bytes = GW_KEY_BYTES;
    EVP_PKEY *own = EVP_PKEY_new_raw_private_key(EVP_PKEY_X25519, NULL, mine->secret, GW_KEY_BYTES);
    EVP_PKEY *peer = EVP_PKEY_new_raw_public_key(EVP_PKEY_X25519, NULL, theirs, GW_KEY_BYTES);
    EVP_PKEY_CTX *context = own && peer ? EVP_PKEY_CTX_new(own, NULL) : NULL;
    bool ok = context && EVP_PKEY_derive_init(context) == 1 && EVP_PKEY_derive_set_peer(context, peer) == 1 &&
              EVP_PKEY_derive(context, shared, &bytes) == 1 && CRYPTO_memcmp(shared, zero, GW_KEY_BYTES) != 0;
    EVP_PKEY_CTX_free(context);
    EVP_PKEY_free(peer);
    EVP_PKEY_free(own);
    return ok;
}

/* OSSL_PARAM takes pointers to bytes that it does not change, without const. */
static OSSL_PARAM bytes_param(const char *name, const uint8_t *bytes, size_t count) {
    return OSSL_PARAM_construct_octet_string(name, (void *)(uintptr_t)bytes, count);
}

bool gw_key_derive(const uint8_t *secret, size_t secret_bytes, const uint8_t salt[GW_KEY_BYTES], const uint8_t *info,
                   size_t info_bytes, uint8_t *out, size_t count) {
    char digest[] = "SHA256";
    EVP_KDF *kdf = EVP_KDF_fetch(NULL, OSSL_KDF_NAME_HKDF, NULL);
    EVP_KDF_CTX *context = kdf ? EVP_KDF_CTX_new(kdf) : NULL;
    OSSL_PARAM params[] = {OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, digest, 0),
                           bytes_param(OSSL_KDF_PARAM_KEY, secret, secret_bytes),
                           bytes_param(OSSL_KDF_PARAM_SALT, salt, GW_KEY_BYTES),
                           bytes_param(OSSL_KDF_PARAM_INFO, info, info_bytes), OSSL_PARAM_construct_end()};
    bool ok = context && EVP_KDF_derive(context, out, count, params) == 1;
    EVP_KDF_CTX_free(context);
    EVP_KDF_free(kdf);
    return ok;
}
