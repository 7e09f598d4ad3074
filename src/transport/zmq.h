/* zmq.h - the transport over ZeroMQ: each rank has a ROUTER socket that hears from all, and a DEALER to each peer that
 * it has something for.
 *
 * Who may come in. The keys of CURVE are derived from the job's: a peer cannot say one valid word without knowing the
 * ROUTER's public key, which never travels, and everything is encrypted. The routing id names the sender's rank and
 * generation and carries a proof of its own, which is all there is where the strategy says `clear`: strangers that
 * cannot read the network are kept out, but nothing is hidden from those that can.
 *
 * ZeroMQ connects anew by itself when a connection breaks, and what was under way is then gone without a word. So
 * messages are numbered, and a gap is a lost peer. Peers that leave say so in-band, as the last thing.
 *
 * One thread at a time, as transport.h says; ZeroMQ has an I/O thread of its own. reset() and close() wait for that
 * thread to let go of lent memory, which it does at once; close() besides for what was sent last, a second at most. */
#ifndef GW_TRANSPORT_ZMQ_H
#define GW_TRANSPORT_ZMQ_H

#include "transport/address.h"
#include "transport/transport.h"

#define GW_ZMQ_KEY_BYTES 32
#define GW_ZMQ_ENDPOINT_BYTES 8

typedef struct gw_zmq_options {
    int rank, world;
    bool clear;                    /* no CURVE; the same on all ranks */
    uint8_t key[GW_ZMQ_KEY_BYTES]; /* of the job, for this use alone */
    gw_address address;            /* to listen on; its port is ignored */
    int port_low, port_high;       /* 0, 0: any */
} gw_zmq_options;

/* GW_UNSUPPORTED where this gradwire was built without ZeroMQ. The generation is 0 until reset() gives another. */
gw_status gw_zmq_open(gw_transport **out, const gw_zmq_options *options, gw_sink sink, gw_error *error);
/* GW_UNSUPPORTED, with the same reason, where gw_zmq_open could not work. */
gw_status gw_zmq_usable(gw_error *error);
/* What this rank tells the others about itself. */
void gw_zmq_endpoint(const gw_transport *transport, uint8_t endpoint[GW_ZMQ_ENDPOINT_BYTES]);
/* Before anything is sent to a peer, or comes from it: where it is, and what it told. */
gw_status gw_zmq_attach(gw_transport *transport, int peer, const gw_address *host,
                        const uint8_t endpoint[GW_ZMQ_ENDPOINT_BYTES], gw_error *error);

#endif
