/* endpoint.h - the record in which a rank describes itself to the others, and the messages of the rendezvous.
 *
 * A rank sends one record to rank 0 over its authenticated JOIN connection; rank 0 answers with a header and then the
 * table of all records in rank order, or a sentence that says why there is none. */
#ifndef GW_BOOTSTRAP_ENDPOINT_H
#define GW_BOOTSTRAP_ENDPOINT_H

#include "bootstrap/address.h"
#include "bootstrap/key_exchange.h"

#define GW_ENDPOINT_HOST 64     /* with its final zero */
#define GW_ENDPOINT_IDENTITY 32 /* hexadecimal characters */
/* first characters of the identity: equal on hosts (namespaces) of one machine, which share its cores */
#define GW_ENDPOINT_MACHINE 16
#define GW_ENDPOINT_TRANSPORT_BYTES 64
#define GW_ENDPOINT_BYTES                                                                                              \
    (4 + 4 + 8 + GW_ADDRESS_WIRE_BYTES + GW_ENDPOINT_HOST + GW_ENDPOINT_IDENTITY + GW_KEY_BYTES +                      \
     GW_ENDPOINT_TRANSPORT_BYTES)

typedef struct gw_endpoint {
    int rank;
    uint32_t pid;
    uint64_t started;                        /* of that process (base/process.h); 0: unknown */
    char host[GW_ENDPOINT_HOST];             /* name, for people */
    char identity[GW_ENDPOINT_IDENTITY + 1]; /* equal on ranks that can share memory: same boot and namespaces */
    gw_address address;                      /* of its listener */
    uint8_t public_key[GW_KEY_BYTES];        /* its static key (auth.h), which later connections must prove */
    uint8_t
        transport[GW_ENDPOINT_TRANSPORT_BYTES]; /* of the shm transport; without one, of the transport between hosts */
} gw_endpoint;

/* Describes this process: everything but the public key, which gw_rendezvous adds, and `transport`; both are zeroed. */
gw_status gw_endpoint_describe(int rank, const gw_address *address, gw_endpoint *mine, gw_error *error);

void gw_endpoint_write(const gw_endpoint *endpoint, uint8_t bytes[GW_ENDPOINT_BYTES]);
/* Strict: rank below world, text printable and zero padded, an address one can connect to. */
gw_status gw_endpoint_read(gw_endpoint *endpoint, const uint8_t bytes[GW_ENDPOINT_BYTES], int world, gw_error *error);

#define GW_REPLY_BYTES 16

/* The header of rank 0's answer. */
typedef struct gw_reply {
    gw_status status; /* GW_OK: `length` bytes of table follow; else `length` bytes of a sentence */
    int rank;         /* to blame, -1: none */
    uint32_t length;
} gw_reply;

void gw_reply_write(const gw_reply *reply, uint8_t bytes[GW_REPLY_BYTES]);
gw_status gw_reply_read(gw_reply *reply, const uint8_t bytes[GW_REPLY_BYTES], int world, gw_error *error);
/* Reads the complete body after the header: `all` gets world entries, or *error gets rank 0's sentence. */
gw_status gw_reply_body_read(const gw_reply *reply, const uint8_t *body, int world, gw_endpoint *all, gw_error *error);

#endif
