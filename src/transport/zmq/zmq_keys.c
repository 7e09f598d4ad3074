/* zmq_keys.c - see zmq_keys.h. */
#include "transport/zmq/zmq_keys.h"

#include "base/little_endian.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <string.h>
#include <zmq.h>

#define DERIVED_BYTES 32
#define PROOF_BYTES (GW_ZMQ_ID_BYTES - 9)

static bool derive(const uint8_t key[GW_ZMQ_KEY_BYTES], const uint8_t *label, size_t bytes,
                   uint8_t out[DERIVED_BYTES]) {
    unsigned length = 0;
    return HMAC(EVP_sha256(), key, GW_ZMQ_KEY_BYTES, label, bytes, out, &length) && length == DERIVED_BYTES;
}

bool gw_zmq_key_pair(const uint8_t key[GW_ZMQ_KEY_BYTES], const char *label, char public_key[GW_ZMQ_KEY_TEXT],
                     char secret_key[GW_ZMQ_KEY_TEXT]) {
    uint8_t secret[DERIVED_BYTES];
    bool made = derive(key, (const uint8_t *)label, strlen(label), secret) &&
                zmq_z85_encode(secret_key, secret, sizeof secret) && zmq_curve_public(public_key, secret_key) == 0;
    OPENSSL_cleanse(secret, sizeof secret);
    return made;
}

bool gw_zmq_id(const uint8_t key[GW_ZMQ_KEY_BYTES], int from, int to, uint32_t generation,
               uint8_t id[GW_ZMQ_ID_BYTES]) {
    uint8_t label[16] = "id", proof[DERIVED_BYTES];
    gw_le_put(label + 4, (uint32_t)from, 4);
    gw_le_put(label + 8, (uint32_t)to, 4);
    gw_le_put(label + 12, generation, 4);
    if (!derive(key, label, sizeof label, proof)) return false;
    id[0] = 'g'; /* ZeroMQ reserves ids that begin with zero */
    gw_le_put(id + 1, (uint32_t)from, 4);
    gw_le_put(id + 5, generation, 4);
    memcpy(id + 9, proof, PROOF_BYTES);
    return true;
}

bool gw_zmq_id_read(const uint8_t id[GW_ZMQ_ID_BYTES], int world, int *from, uint32_t *generation) {
    if (id[0] != 'g' || gw_le_get32(id + 1) >= (uint32_t)world) return false;
    *from = (int)gw_le_get32(id + 1);
    *generation = gw_le_get32(id + 5);
    return true;
}
