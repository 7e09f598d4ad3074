/* rdma_wire.h - the wire format of messages over the fabric, and of the hello over the authenticated connection. Pure
 * functions.
 *
 * A message begins with the cookie, which is compared before anything else is read. With a peer of another host the
 * last four bytes are a CRC32C of all before them. */
#ifndef GW_TRANSPORT_RDMA_RDMA_WIRE_H
#define GW_TRANSPORT_RDMA_RDMA_WIRE_H

#include "transport/frame.h"

#define GW_RDMA_COOKIE_BYTES 16
#define GW_RDMA_NAME_BYTES 32     /* of a provider, with its final zero */
#define GW_RDMA_ADDRESS_BYTES 256 /* of an endpoint on the fabric, at most */
#define GW_RDMA_HELLO_BYTES (8 + GW_RDMA_COOKIE_BYTES + 16 + GW_RDMA_NAME_BYTES + GW_RDMA_ADDRESS_BYTES)

/* A rank's address on the fabric, and the cookie for messages to it. */
typedef struct gw_rdma_hello {
    uint8_t cookie[GW_RDMA_COOKIE_BYTES];
    uint64_t stamps_address, stamps_key; /* of its stamp table (rdma_immediate.c), where the provider needs one */
    char provider[GW_RDMA_NAME_BYTES];
    uint8_t address[GW_RDMA_ADDRESS_BYTES];
    size_t address_bytes;
} gw_rdma_hello;

void gw_rdma_hello_write(const gw_rdma_hello *hello, uint8_t bytes[GW_RDMA_HELLO_BYTES]);
gw_status gw_rdma_hello_read(gw_rdma_hello *hello, const uint8_t bytes[GW_RDMA_HELLO_BYTES], gw_error *error);

#define GW_RDMA_RECV_BUFFERS_MAX 16  /* in one message */
#define GW_RDMA_RECV_BUFFER_BYTES 40 /* of one, on the wire */
#define GW_RDMA_HEADER_BYTES (32 + GW_FRAME_BYTES)
#define GW_RDMA_SUM_BYTES 4
#define GW_RDMA_MESSAGE_BYTES 16384 /* header, payload or receive buffers, and sum, at most */
/* The largest payload in a message. */
#define GW_RDMA_INLINE_BYTES (GW_RDMA_MESSAGE_BYTES - GW_RDMA_HEADER_BYTES - GW_RDMA_SUM_BYTES)

typedef enum gw_rdma_kind {
    GW_RDMA_FRAME = 1, /* a frame, with the payload of DATA or the receive buffers of a GRANT */
    GW_RDMA_OFFER,     /* the frame of a DATA whose payload needs a receive buffer */
    GW_RDMA_CLEAR,     /* clear to send: the frame of the OFFER, and its receive buffer */
    GW_RDMA_WRITTEN,   /* the payload of this frame is in the buffer (slot, nonce) */
} gw_rdma_kind;

/* Where one message may be written. */
typedef struct gw_rdma_recv_buffer {
    uint32_t slot;  /* the receiver's number for it */
    uint32_t nonce; /* sent with the write, where immediate data has room for it */
    uint64_t index; /* of the message in its channel */
    uint64_t address, key, bytes;
} gw_rdma_recv_buffer;

typedef struct gw_rdma_message {
    gw_rdma_kind kind;
    int from;
    gw_frame frame;
    uint32_t slot, nonce;  /* WRITTEN */
    uint32_t payload_sum;  /* WRITTEN: CRC32C of what is in the buffer; 0 where messages have no sums */
    int recv_buffer_count; /* FRAME with a GRANT, CLEAR */
    gw_rdma_recv_buffer recv_buffers[GW_RDMA_RECV_BUFFERS_MAX];
} gw_rdma_message;

/* Everything but a payload, which the caller puts behind it. Returns the bytes written. */
size_t gw_rdma_message_write(const gw_rdma_message *message, const uint8_t cookie[GW_RDMA_COOKIE_BYTES],
                             uint8_t bytes[GW_RDMA_MESSAGE_BYTES]);
/* Appends the sum; returns the length with it. */
size_t gw_rdma_message_add_sum(uint8_t *bytes, size_t length);
/* Takes the sum off *length. False: it is wrong. */
bool gw_rdma_message_check_sum(const uint8_t *bytes, size_t *length);
/* True if the bytes begin with this cookie, but for a few bits: a message that was damaged there. Nobody guesses that
 * much of a cookie. */
bool gw_rdma_cookie_damaged(const uint8_t *bytes, size_t length, const uint8_t cookie[GW_RDMA_COOKIE_BYTES]);
/* The rank that the message claims to be from; -1: no rank. The caller checks the cookie, at the start of bytes. */
int gw_rdma_message_from(const uint8_t *bytes, size_t length, int world);
/* A payload begins at bytes + GW_RDMA_HEADER_BYTES; checks that it is complete. */
gw_status gw_rdma_message_read(gw_rdma_message *message, const uint8_t *bytes, size_t length, gw_error *error);

/* Immediate data: place (slot * world + rank) below 2^28, credits below 16. */
#define GW_RDMA_PLACES ((uint64_t)1 << 28)

uint64_t gw_rdma_immediate(uint64_t place, unsigned credits, uint32_t nonce);
void gw_rdma_immediate_read(uint64_t data, uint64_t *place, unsigned *credits, uint32_t *nonce);

#endif
