/* zmq_internal.h - the state of the zmq transport, shared by its own files only. Everything belongs to the polling
 * thread, except atomics, which ZeroMQ's I/O thread uses too. */
#ifndef GW_TRANSPORT_ZMQ_ZMQ_INTERNAL_H
#define GW_TRANSPORT_ZMQ_ZMQ_INTERNAL_H

#include "base/little_endian.h"
#include "transport/zmq/zmq_keys.h"
#include "transport/zmq/zmq_transport.h"

#include <stdatomic.h>
#include <zmq.h>

#define NUMBER_BYTES 8
#define HEAD_BYTES (NUMBER_BYTES + GW_FRAME_BYTES)
#define DETAIL_BYTES 128

typedef struct peer {
    struct zmq *transport;       /* the transport it belongs to, for the I/O thread; constant */
    int number;                  /* its rank */
    void *dealer;                /* NULL: nothing was sent yet in this generation */
    uint64_t sent, received;     /* messages of this generation */
    gw_address address;          /* of its ROUTER */
    uint8_t id[GW_ZMQ_ID_BYTES]; /* of its messages to this rank in generation id_of */
    int64_t id_of;               /* -1: none yet */
    bool attached, lost;         /* its address is known; lost() was called */
    bool tuned;                  /* its connection has left bbr (library_sockets.h) */
    bool left;                   /* it said goodbye */
    gw_status broken;            /* poll() must report it */
    char detail[DETAIL_BYTES];
} peer;

/* A message of a later generation. */
typedef struct held {
    struct held *next;
    int from;
    uint32_t generation;
    zmq_msg_t head, body;
} held;

typedef struct zmq {
    gw_transport base;
    int rank, world;
    bool clear;                    /* no encryption */
    uint8_t key[GW_ZMQ_KEY_BYTES]; /* the job's; all others are derived from it */
    uint32_t generation;
    int port; /* of the ROUTER */
    void *context, *router;
    int epoll, bell;               /* the ROUTER's descriptor and the bell, an eventfd */
    _Atomic bool asleep;           /* the poller sleeps: ring the bell */
    _Atomic(gw_packet *) done;     /* lent packets that the I/O thread has released, latest first */
    _Atomic int lent;              /* packets that it still holds */
    held *first_held, **last_held; /* in the order they came */
    int held_count;
    bool closing;   /* only goodbyes are handled */
    bool unsettled; /* some peer is broken and poll() has not reported it */
    peer *peers;
    char server_public[GW_ZMQ_KEY_TEXT], server_secret[GW_ZMQ_KEY_TEXT];
    char client_public[GW_ZMQ_KEY_TEXT], client_secret[GW_ZMQ_KEY_TEXT];
} zmq;

/* zmq_send.c */
bool gw_zmq_set(void *socket, int option, int value);
/* The peer is lost for this reason; the next poll() reports it. */
void gw_zmq_break_off(zmq *z, int number, gw_status status, const char *detail);
/* The socket to a peer, made when first used; NULL: there is none, and the peer is broken. */
void *gw_zmq_dealer_to(zmq *z, int number);
bool gw_zmq_send_part(void *socket, zmq_msg_t *part, int flags);
void gw_zmq_send(gw_transport *transport, int number, gw_packet *packet);
bool gw_zmq_give_back(zmq *z); /* packets that the I/O thread has released */

/* zmq_receive.c */
bool gw_zmq_receive(zmq *z, uint64_t *bytes); /* one message with all its parts; false: there is none */
bool gw_zmq_release_held(zmq *z);             /* delivers held messages that are of this generation now */
void gw_zmq_drop_held(zmq *z);

#endif
