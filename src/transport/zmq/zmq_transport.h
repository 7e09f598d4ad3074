/* zmq_transport.h - the transport over ZeroMQ: each rank has a ROUTER socket that receives from all, and a DEALER to
 * each peer that it sends to.
 *
 * Authentication: the CURVE keys are derived from the job's key. A peer cannot send a valid message without the
 * ROUTER's public key, which is never sent, and everything is encrypted. The routing id has the sender's rank, its
 * generation and a proof of the job's key. With `clear` that proof is the only protection: it keeps out strangers that
 * cannot read the network, but hides nothing from those that can.
 *
 * ZeroMQ reconnects by itself when a connection breaks, and silently loses the messages in flight. So messages are
 * numbered, and a gap means a lost peer. A peer that leaves says so in its last message.
 *
 * One thread at a time, as transport.h says; ZeroMQ has its own I/O thread. reset() and close() wait until that thread
 * has released lent memory, which it does at once; close() also waits up to a second for the last messages to leave. */
#ifndef GW_TRANSPORT_ZMQ_ZMQ_TRANSPORT_H
#define GW_TRANSPORT_ZMQ_ZMQ_TRANSPORT_H

#include "base/param.h"
#include "bootstrap/address.h"
#include "transport/transport.h"

#define GW_ZMQ_KEY_BYTES 32
#define GW_ZMQ_ENDPOINT_BYTES 8

/* The entry in the strategy line: the same in builds with and without ZeroMQ (zmq_absent.c). */
#define GW_ZMQ_TECHNIQUE                                                                                               \
    {                                                                                                                  \
        .name = "zmq", .about = "ZeroMQ, encrypted, for networks with odd rules",                                      \
        .params = GW_PARAMS({.name = "clear", .kind = GW_PARAM_FLAG,                                                   \
                             .about = "not encrypted: faster, where nobody else reads the network"})                   \
    }

typedef struct gw_zmq_options {
    int rank, world;
    bool clear;                    /* no CURVE; the same on all ranks */
    uint8_t key[GW_ZMQ_KEY_BYTES]; /* of the job, for this use alone */
    gw_address address;            /* to listen on; its port is ignored */
    int port_low, port_high;       /* 0, 0: any */
} gw_zmq_options;

/* The generation is 0 until reset() gives another. */
gw_status gw_zmq_open(gw_transport **out, const gw_zmq_options *options, gw_sink sink, gw_error *error);
/* What peers need to reach this rank. */
void gw_zmq_endpoint(const gw_transport *transport, uint8_t endpoint[GW_ZMQ_ENDPOINT_BYTES]);
/* Before anything is sent to a peer or comes from it: its address and its endpoint. */
gw_status gw_zmq_attach(gw_transport *transport, int peer, const gw_address *host,
                        const uint8_t endpoint[GW_ZMQ_ENDPOINT_BYTES], gw_error *error);

#endif
