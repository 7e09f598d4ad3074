/* zmq_inside.h - the state of the zmq transport, shared by its own files only. Everything belongs to the polling thread
 * but what is atomic, which ZeroMQ's I/O thread touches too. */
#ifndef GW_TRANSPORT_ZMQ_INSIDE_H
#define GW_TRANSPORT_ZMQ_INSIDE_H

#include "transport/wire.h"
#include "transport/zmq.h"
#include "transport/zmq_keys.h"

#include <stdatomic.h>
#include <zmq.h>

#define NUMBER_BYTES 8
#define HEAD_BYTES (NUMBER_BYTES + GW_FRAME_BYTES)
#define DETAIL_BYTES 128

typedef struct peer {
    struct zmq *transport;       /* whose peer this is, for the I/O thread; constant */
    int number;                  /* its rank */
    void *dealer;                /* NULL: nothing was sent yet in this generation */
    uint64_t sent, received;     /* messages of this generation */
    gw_address address;          /* of its ROUTER */
    uint8_t id[GW_ZMQ_ID_BYTES]; /* of its messages to this rank in generation id_of */
    int64_t id_of;               /* -1: none yet */
    bool attached, lost;         /* its address is known; lost() was said */
    bool tuned;                  /* its connection has left bbr (foreign.h) */
    bool left;                   /* it said so */
    gw_status broken;            /* to be told by poll() */
    char detail[DETAIL_BYTES];
} peer;

/* A message of a generation to come. */
typedef struct held {
    struct held *next;
    int from;
    uint32_t generation;
    zmq_msg_t head, body;
} held;

typedef struct zmq {
    gw_transport base;
    int rank, world;
    bool clear;                        /* no encryption */
    uint8_t key[GW_ZMQ_KEY_BYTES];     /* the job's, from which all others are derived */
    uint32_t generation;
    int port;                          /* of the ROUTER */
    void *context, *router;
    int epoll, bell;                   /* the ROUTER's descriptor and the bell, an eventfd */
    _Atomic bool asleep;               /* the bell is wanted */
    _Atomic(gw_packet *) done;         /* lent packets that the I/O thread has let go of, latest first */
    _Atomic int lent;                  /* packets that it still holds */
    held *first_held, **last_held;     /* in the order they came */
    bool closing;                      /* only goodbyes are heard */
    bool unsettled;                    /* some peer is broken and poll() has not said so */
    peer *peers;
    char server_public[GW_ZMQ_KEY_TEXT], server_secret[GW_ZMQ_KEY_TEXT];
    char client_public[GW_ZMQ_KEY_TEXT], client_secret[GW_ZMQ_KEY_TEXT];
} zmq;

/* zmq_send.c */
bool gw_zmq_set(void *socket, int option, int value);
/* The peer is lost for this reason; said by the next poll(). */
void gw_zmq_break_off(zmq *z, int number, gw_status status, const char *detail);
/* The socket to a peer, made when first used; NULL: there is none, and the peer is broken. */
void *gw_zmq_dealer_to(zmq *z, int number);
bool gw_zmq_send_part(void *socket, zmq_msg_t *part, int flags);
void gw_zmq_send(gw_transport *transport, int number, gw_packet *packet);
bool gw_zmq_give_back(zmq *z); /* what the I/O thread has let go of */

/* zmq_receive.c */
bool gw_zmq_receive(zmq *z, uint64_t *bytes); /* one message with all its parts; false: there is none */
bool gw_zmq_release_held(zmq *z);             /* what was held and is of this generation now */
void gw_zmq_drop_held(zmq *z);

#endif
