/* fuzz_auth.c - both sides of the handshake against any bytes: none are accepted without the token; and hello records.
 */
#include "bootstrap/auth.h"

#include <stdlib.h>
#include <string.h>

/* Feeds the bytes in parts, whose sizes come from the bytes too. */
static void attack(bool server, const uint8_t *data, size_t size) {
    static const uint8_t nonce[GW_AUTH_NONCE_BYTES] = {2};
    static const gw_identity identity = {.key = {1}, .pair = {.secret = {3}}};
    static const gw_intro mine = {.purpose = GW_PURPOSE_DATA, .from = 1, .to = 0, .world = 2};
    gw_auth auth;
    gw_auth_begin(&auth, server, &identity, nonce, &mine);
    while (size > 0) {
        size_t wants = gw_auth_wants(&auth), piece = 1 + data[0] % 64, pending;
        if (wants == 0) break;
        if (piece > wants) piece = wants;
        if (piece > size) piece = size;
        gw_status status = gw_auth_take(&auth, data, piece);
        if (status != GW_OK && (auth.state != GW_AUTH_FAILED || gw_auth_wants(&auth) != 0)) abort();
        gw_auth_output(&auth, &pending);
        if (data[0] & 1) gw_auth_sent(&auth, pending);
        data += piece;
        size -= piece;
    }
    if (gw_auth_done(&auth) || auth.state == GW_AUTH_PROOF || auth.state == GW_AUTH_DONE) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    uint8_t bytes[GW_INTRO_BYTES], again[GW_INTRO_BYTES];
    gw_intro intro;
    attack(false, data, size);
    attack(true, data, size);
    if (size < sizeof bytes) return 0;
    memcpy(bytes, data, sizeof bytes);
    if (!gw_intro_read(&intro, bytes)) return 0;
    if (intro.from < 0 || intro.from >= intro.world || intro.to < 0 || intro.world > GW_WORLD_MAX) abort();
    gw_intro_write(&intro, again);
    if (memcmp(bytes, again, sizeof bytes) != 0) abort();
    return 0;
}
