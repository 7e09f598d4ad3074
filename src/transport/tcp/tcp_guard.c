/* tcp_guard.c - see tcp_guard.h. */
#include "transport/tcp/tcp_guard.h"

#include "base/crc32c.h"
#include "base/little_endian.h"

#define SUM_BYTES 4

gw_status gw_tcp_guard_open(gw_tcp_guard *guard, const gw_traffic_keys *keys, bool checksum, gw_error *error) {
    gw_tcp_guard opened = {.tag_bytes = checksum ? SUM_BYTES : 0};
    *guard = (gw_tcp_guard){0};
    if (keys && keys->security != GW_SECURITY_CLEAR) {
        opened.tag_bytes = GW_SEAL_TAG_BYTES;
        opened.encrypts = keys->security == GW_SECURITY_TLS;
        gw_status status = gw_seal_make(&opened.send, keys->security, &keys->send, error);
        if (!status) status = gw_seal_make(&opened.receive, keys->security, &keys->receive, error);
        if (status) {
            gw_seal_free(opened.send);
            return status;
        }
    }
    *guard = opened;
    return GW_OK;
}

void gw_tcp_guard_close(gw_tcp_guard *guard) {
    gw_seal_free(guard->send);
    gw_seal_free(guard->receive);
    *guard = (gw_tcp_guard){0};
}

const char *gw_tcp_guard_name(const gw_tcp_guard *guard) {
    if (!guard->tag_bytes) return "clear";
    return !guard->send ? "checksum" : guard->encrypts ? "tls" : "mac";
}

/* Two records with the same bytes have different sums, because a CRC is one-to-one in what it begins with. */
static uint32_t sum_of(uint32_t number, const void *record, size_t bytes) {
    return gw_crc32c(number * UINT32_C(0x9e3779b1), record, bytes);
}

bool gw_tcp_guard_protect(gw_tcp_guard *guard, const void *in, void *out, size_t bytes, uint8_t *tag) {
    if (guard->send) return gw_seal_protect(guard->send, in, out, bytes, tag);
    gw_le_put(tag, sum_of(guard->sent++, in, bytes), SUM_BYTES);
    return true;
}

bool gw_tcp_guard_verify(gw_tcp_guard *guard, void *record, size_t bytes, const uint8_t *tag) {
    if (guard->receive) return gw_seal_verify(guard->receive, record, record, bytes, tag);
    return sum_of(guard->received++, record, bytes) == gw_le_get32(tag);
}
