/* tcp_guard.h - what is added to the bytes of one connection, so that changes on their way are seen.
 *
 * The stream is cut into records, each followed by its tag: a header is one record, and its payload is the next ones,
 * of GW_TCP_RECORD_BYTES each but for the last. The tag is a CRC32C (4 bytes), or that of AES-GCM (16), under which
 * `tls` also encrypts. Records are counted on both sides, and the count is part of the tag: one that is left out,
 * repeated or moved does not verify. A clear connection has no tags, and its frames are not cut.
 *
 * Protecting and verifying belong to the thread that polls. */
#ifndef GW_TRANSPORT_TCP_TCP_GUARD_H
#define GW_TRANSPORT_TCP_TCP_GUARD_H

#include "bootstrap/seal.h"

/* A multiple of any element's size. Larger ones leave the cache before they are verified, and smaller ones take more
 * system calls. */
#define GW_TCP_RECORD_BYTES ((size_t)256 << 10)
#define GW_TCP_TAG_MAX GW_SEAL_TAG_BYTES

typedef struct gw_tcp_guard {
    size_t tag_bytes;        /* 0: clear */
    bool encrypts;           /* tls */
    gw_seal *send, *receive; /* NULL: a checksum */
    uint32_t sent, received; /* records under a checksum so far, modulo 2^32 */
} gw_tcp_guard;

/* keys: NULL is clear; they are copied. A checksum is added only where mac and tls are not. On failure the guard is
 * clear. */
gw_status gw_tcp_guard_open(gw_tcp_guard *guard, const gw_traffic_keys *keys, bool checksum, gw_error *error);
void gw_tcp_guard_close(gw_tcp_guard *guard);
const char *gw_tcp_guard_name(const gw_tcp_guard *guard); /* clear, checksum, mac or tls */

/* The next record to send: writes its tag, and with tls its ciphertext to out, which may be in. False: libcrypto
 * failed. */
bool gw_tcp_guard_protect(gw_tcp_guard *guard, const void *in, void *out, size_t bytes, uint8_t *tag);
/* The next record received; with tls it is decrypted in place. False: it is not what the peer sent, and the connection
 * must end. */
bool gw_tcp_guard_verify(gw_tcp_guard *guard, void *record, size_t bytes, const uint8_t *tag);

#endif
