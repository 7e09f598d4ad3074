/* rdma_wire.c - see rdma_wire.h. A message on the wire:
 *
 *     0 cookie    16 from    20 kind    21 buffers    22 zeros    24 slot    28 nonce    32 frame    96 what follows
 *
 * What follows is a payload, receive buffers, or the sum of a payload that was written; and then the message's sum. */
#include "transport/rdma/rdma_wire.h"

#include "base/crc32c.h"
#include "base/little_endian.h"

#include <inttypes.h>
#include <string.h>

#define COOKIE_BITS 16                   /* of 128 that damage may have changed */
#define HELLO_MAGIC UINT32_C(0x33415747) /* "GWA3" */

enum { AT_MAGIC = 0, AT_ADDRESS_BYTES = 4, AT_ZEROS = 6, AT_HELLO_COOKIE = 8 };
enum { AT_STAMPS = AT_HELLO_COOKIE + GW_RDMA_COOKIE_BYTES, AT_PROVIDER = AT_STAMPS + 16 };
enum { AT_ADDRESS = AT_PROVIDER + GW_RDMA_NAME_BYTES };
enum { AT_FROM = 16, AT_KIND = 20, AT_RECV_BUFFERS = 21, AT_SLOT = 24, AT_NONCE = 28, AT_FRAME = 32 };

static gw_status wrong(gw_error *error, const char *what, uint64_t value) {
    return gw_fail(error, GW_PROTOCOL, "%s is %" PRIu64 ", which no gradwire of this version sends", what, value);
}

void gw_rdma_hello_write(const gw_rdma_hello *hello, uint8_t bytes[GW_RDMA_HELLO_BYTES]) {
    memset(bytes, 0, GW_RDMA_HELLO_BYTES);
    gw_le_put(bytes + AT_MAGIC, HELLO_MAGIC, 4);
    gw_le_put(bytes + AT_ADDRESS_BYTES, hello->address_bytes, 2);
    memcpy(bytes + AT_HELLO_COOKIE, hello->cookie, GW_RDMA_COOKIE_BYTES);
    gw_le_put(bytes + AT_STAMPS, hello->stamps_address, 8);
    gw_le_put(bytes + AT_STAMPS + 8, hello->stamps_key, 8);
    memcpy(bytes + AT_PROVIDER, hello->provider, strnlen(hello->provider, GW_RDMA_NAME_BYTES - 1));
    memcpy(bytes + AT_ADDRESS, hello->address, hello->address_bytes);
}

gw_status gw_rdma_hello_read(gw_rdma_hello *hello, const uint8_t bytes[GW_RDMA_HELLO_BYTES], gw_error *error) {
    gw_rdma_hello read = {.address_bytes = gw_le_get16(bytes + AT_ADDRESS_BYTES),
                          .stamps_address = gw_le_get64(bytes + AT_STAMPS),
                          .stamps_key = gw_le_get64(bytes + AT_STAMPS + 8)};
    if (gw_le_get32(bytes + AT_MAGIC) != HELLO_MAGIC) return wrong(error, "the magic of a hello", gw_le_get32(bytes));
    if (read.address_bytes == 0 || read.address_bytes > GW_RDMA_ADDRESS_BYTES)
        return wrong(error, "the length of a fabric address", read.address_bytes);
    memcpy(read.cookie, bytes + AT_HELLO_COOKIE, GW_RDMA_COOKIE_BYTES);
    memcpy(read.provider, bytes + AT_PROVIDER, GW_RDMA_NAME_BYTES);
    if (read.provider[GW_RDMA_NAME_BYTES - 1]) return wrong(error, "the end of a provider's name", 1);
    for (const char *c = read.provider; *c; c++)
        if (*c < ' ' || *c > '~') return wrong(error, "a character of a provider's name", (uint8_t)*c);
    memcpy(read.address, bytes + AT_ADDRESS, read.address_bytes);
    *hello = read;
    return GW_OK;
}

static void recv_buffer_write(const gw_rdma_recv_buffer *recv_buffer, uint8_t *bytes) {
    gw_le_put(bytes, recv_buffer->slot, 4);
    gw_le_put(bytes + 4, recv_buffer->nonce, 4);
    gw_le_put(bytes + 8, recv_buffer->index, 8);
    gw_le_put(bytes + 16, recv_buffer->address, 8);
    gw_le_put(bytes + 24, recv_buffer->key, 8);
    gw_le_put(bytes + 32, recv_buffer->bytes, 8);
}

static gw_rdma_recv_buffer recv_buffer_read(const uint8_t *bytes) {
    return (gw_rdma_recv_buffer){.slot = gw_le_get32(bytes),
                                 .nonce = gw_le_get32(bytes + 4),
                                 .index = gw_le_get64(bytes + 8),
                                 .address = gw_le_get64(bytes + 16),
                                 .key = gw_le_get64(bytes + 24),
                                 .bytes = gw_le_get64(bytes + 32)};
}

/* Without a payload and the message's sum. */
static size_t bytes_behind(const gw_rdma_message *m) {
    return (size_t)m->recv_buffer_count * GW_RDMA_RECV_BUFFER_BYTES +
           (m->kind == GW_RDMA_WRITTEN ? sizeof m->payload_sum : 0);
}

size_t gw_rdma_message_write(const gw_rdma_message *message, const uint8_t cookie[GW_RDMA_COOKIE_BYTES],
                             uint8_t bytes[GW_RDMA_MESSAGE_BYTES]) {
    memcpy(bytes, cookie, GW_RDMA_COOKIE_BYTES);
    gw_le_put(bytes + AT_FROM, (uint32_t)message->from, 4);
    bytes[AT_KIND] = (uint8_t)message->kind;
    bytes[AT_RECV_BUFFERS] = (uint8_t)message->recv_buffer_count;
    gw_le_put(bytes + AT_RECV_BUFFERS + 1, 0, 2);
    gw_le_put(bytes + AT_SLOT, message->slot, 4);
    gw_le_put(bytes + AT_NONCE, message->nonce, 4);
    gw_frame_write(&message->frame, bytes + AT_FRAME);
    for (int i = 0; i < message->recv_buffer_count; i++)
        recv_buffer_write(&message->recv_buffers[i], bytes + GW_RDMA_HEADER_BYTES + i * GW_RDMA_RECV_BUFFER_BYTES);
    if (message->kind == GW_RDMA_WRITTEN) gw_le_put(bytes + GW_RDMA_HEADER_BYTES, message->payload_sum, 4);
    return GW_RDMA_HEADER_BYTES + bytes_behind(message);
}

size_t gw_rdma_message_add_sum(uint8_t *bytes, size_t length) {
    gw_le_put(bytes + length, gw_crc32c(0, bytes, length), GW_RDMA_SUM_BYTES);
    return length + GW_RDMA_SUM_BYTES;
}

bool gw_rdma_message_check_sum(const uint8_t *bytes, size_t *length) {
    if (*length < GW_RDMA_HEADER_BYTES + GW_RDMA_SUM_BYTES) return false;
    *length -= GW_RDMA_SUM_BYTES;
    return gw_crc32c(0, bytes, *length) == gw_le_get32(bytes + *length);
}

bool gw_rdma_cookie_damaged(const uint8_t *bytes, size_t length, const uint8_t cookie[GW_RDMA_COOKIE_BYTES]) {
    int differ = 0;
    if (length < GW_RDMA_COOKIE_BYTES) return false;
    for (int i = 0; i < GW_RDMA_COOKIE_BYTES; i++) differ += __builtin_popcount(bytes[i] ^ cookie[i]);
    return differ <= COOKIE_BITS;
}

int gw_rdma_message_from(const uint8_t *bytes, size_t length, int world) {
    if (length < GW_RDMA_HEADER_BYTES) return -1;
    uint32_t from = gw_le_get32(bytes + AT_FROM);
    return from < (uint32_t)world ? (int)from : -1;
}

/* Whether a message of this kind may have this many receive buffers. */
static bool recv_buffers_fit(const gw_rdma_message *m) {
    if (m->kind == GW_RDMA_CLEAR) return m->recv_buffer_count == 1;
    bool grant = m->kind == GW_RDMA_FRAME && m->frame.kind == GW_FRAME_GRANT;
    return m->recv_buffer_count <= (grant ? GW_RDMA_RECV_BUFFERS_MAX : 0);
}

gw_status gw_rdma_message_read(gw_rdma_message *message, const uint8_t *bytes, size_t length, gw_error *error) {
    gw_rdma_message read = {.kind = bytes[AT_KIND], .from = (int)gw_le_get32(bytes + AT_FROM),
                            .slot = gw_le_get32(bytes + AT_SLOT), .nonce = gw_le_get32(bytes + AT_NONCE),
                            .recv_buffer_count = bytes[AT_RECV_BUFFERS]};
    if (read.kind < GW_RDMA_FRAME || read.kind > GW_RDMA_WRITTEN) return wrong(error, "a message's kind", read.kind);
    gw_status status = gw_frame_read(&read.frame, bytes + AT_FRAME, error);
    if (status != GW_OK) return status;
    if (read.kind != GW_RDMA_FRAME && read.frame.kind != GW_FRAME_DATA)
        return wrong(error, "the frame of a message about data", read.frame.kind);
    if (!recv_buffers_fit(&read))
        return wrong(error, "the number of receive buffers", (uint64_t)read.recv_buffer_count);
    uint64_t follows = bytes_behind(&read) + (read.kind == GW_RDMA_FRAME ? read.frame.length : 0);
    if (length - GW_RDMA_HEADER_BYTES != follows) return wrong(error, "the length of a message", length);
    for (int i = 0; i < read.recv_buffer_count; i++)
        read.recv_buffers[i] = recv_buffer_read(bytes + GW_RDMA_HEADER_BYTES + i * GW_RDMA_RECV_BUFFER_BYTES);
    if (read.kind == GW_RDMA_WRITTEN) read.payload_sum = gw_le_get32(bytes + GW_RDMA_HEADER_BYTES);
    *message = read;
    return GW_OK;
}

uint64_t gw_rdma_immediate(uint64_t place, unsigned credits, uint32_t nonce) {
    return (uint64_t)nonce << 32 | (uint64_t)credits << 28 | place;
}

void gw_rdma_immediate_read(uint64_t data, uint64_t *place, unsigned *credits, uint32_t *nonce) {
    *place = data & (GW_RDMA_PLACES - 1);
    *credits = (unsigned)(data >> 28 & 15);
    *nonce = (uint32_t)(data >> 32);
}
