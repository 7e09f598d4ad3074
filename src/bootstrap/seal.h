/* seal.h - one direction of a protected connection: records under one key, which are counted, so that none can be
 * left out, repeated or moved. AES-128-GCM by libcrypto: `mac` leaves the bytes readable and adds a tag (GMAC), `tls`
 * encrypts them too. The nonce of a record is the key's iv with the record's number in its last eight bytes (as in RFC
 * 8446, section 5.3). A context belongs to one thread at a time. */
#ifndef GW_BOOTSTRAP_SEAL_H
#define GW_BOOTSTRAP_SEAL_H

#include "base/status.h"

#define GW_SEAL_KEY_BYTES 16
#define GW_SEAL_IV_BYTES 12
#define GW_SEAL_TAG_BYTES 16
#define GW_SEAL_RECORD_MAX ((size_t)1 << 30)

typedef enum gw_security {
    GW_SECURITY_CLEAR, /* nothing is added */
    GW_SECURITY_MAC,   /* nobody can change bytes unseen */
    GW_SECURITY_TLS,   /* nor read them */
    GW_SECURITIES
} gw_security;

typedef struct gw_seal_key {
    uint8_t key[GW_SEAL_KEY_BYTES], iv[GW_SEAL_IV_BYTES];
} gw_seal_key;

/* What a connection is protected with, once both sides have proved themselves. With GW_SECURITY_CLEAR the keys are
 * not used. */
typedef struct gw_traffic_keys {
    gw_security security;
    gw_seal_key send, receive;
} gw_traffic_keys;

typedef struct gw_seal gw_seal;

/* security: mac or tls. The key is copied into libcrypto's context. */
gw_status gw_seal_make(gw_seal **seal, gw_security security, const gw_seal_key *key, gw_error *error);
void gw_seal_free(gw_seal *seal); /* NULL is fine */

/* The next record of `bytes` (up to GW_SEAL_RECORD_MAX): tls writes its ciphertext to out, which may be in; mac reads
 * in and leaves out alone. False: libcrypto failed, and the connection is of no use any more. */
bool gw_seal_protect(gw_seal *seal, const void *in, void *out, size_t bytes, uint8_t tag[GW_SEAL_TAG_BYTES]);
/* The next record from the peer. False: it is not what the peer sent in this place; then out must not be used. */
bool gw_seal_verify(gw_seal *seal, const void *in, void *out, size_t bytes, const uint8_t tag[GW_SEAL_TAG_BYTES]);

#endif
