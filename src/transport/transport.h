/* transport.h - the interface of a transport: it moves frames between this rank and its peers.
 *
 * A transport is polled: it does its work inside these functions only. None of them blocks, sleeps or reads a clock,
 * and one thread at a time calls them (the one that holds the context's lock). DATA frames of the same urgency from one
 * peer arrive in the order sent where the transport is `ordered`, otherwise in any order; other frames may overtake
 * them. No frame is lost or duplicated while the peer lives.
 *
 * The engine sends DATA only where the receiver has a buffer for it (grants and eager credits, engine/flow_control.c).
 * So a transport may always deliver what arrives, and never buffers payloads itself. */
#ifndef GW_TRANSPORT_H
#define GW_TRANSPORT_H

#include "base/clock.h"
#include "base/status.h"
#include "bootstrap/seal.h"
#include "transport/frame.h"

/* The urgency of frames without payload (grants, credits, announcements): the peer may be unable to go on until it has
 * them. */
#define GW_URGENT_SIGNAL 255

/* One outgoing frame. Owned by the engine, lent to the transport from send() until sent(). */
typedef struct gw_packet {
    gw_frame frame;
    const void *data;       /* frame.length bytes, lent too */
    struct gw_packet *next; /* the transport's, while queued */
    void *owner;            /* the engine's */
    uint64_t progress;      /* the transport's: bytes already handed to the kernel, or its own position */
    uint8_t urgency;        /* of DATA: it may overtake queued packets of lower urgency to the same peer */
    uint64_t first;         /* of a GRANT: it newly grants the messages first..frame.index-1 */
} gw_packet;

/* The engine's callbacks, called from within poll() or send(). */
typedef struct gw_sink {
    void *ctx;
    /* A DATA frame begins: returns the buffer for its payload (frame->length bytes). NULL: there is none, and the
     * connection fails with GW_PROTOCOL. The buffer belongs to the connection that asked until the message has arrived
     * or the connection has ended; a connection that ended writes there no more. Not called where the transport gives
     * arrived() the peer's own memory, or where part() took the payload. */
    void *(*recv_buffer)(void *ctx, int peer, const gw_frame *frame);
    /* A part of a DATA frame's payload, from offset `at` on, valid during this call only. The first call decides: false
     * means that the payload must go to recv_buffer(); true means that the engine has used this part and takes all
     * others in the same way, in order, and then arrived() with data NULL. The first part may be empty: it only asks.
     * May be NULL. Only for transports that copy (shm, tcp); a part has whole elements of any type. */
    bool (*part)(void *ctx, int peer, const gw_frame *frame, uint64_t at, const void *data, uint64_t bytes);
    /* The frame and its payload are here. data is what recv_buffer() returned, or, from a transport that maps the
     * sender's memory, a view that stays valid until release(peer, ticket) (ticket 0: nothing to release). */
    void (*arrived)(void *ctx, int peer, const gw_frame *frame, const void *data, uint64_t ticket);
    /* The packet and its data may be reused. */
    void (*sent)(void *ctx, int peer, gw_packet *packet);
    /* The link to this peer is gone; called once. detail is a clause ("connection reset by peer"). */
    void (*lost)(void *ctx, int peer, gw_status status, const char *detail);
    /* The receive buffer (*bytes long) of a message that this GRANT packet grants; NULL if the message has arrived or
     * goes elsewhere. Only for transports that tell the sender where to write (rdma), while they hold the packet. */
    void *(*granted)(void *ctx, int peer, const gw_packet *grant, uint64_t index, uint64_t *bytes);
} gw_sink;

typedef struct gw_transport gw_transport;
typedef struct gw_native_task gw_native_task;

/* The all-reduce of a transport's library (arch=mpi). All ranks of the job start the same ones in the same order. */
typedef struct gw_native {
    bool (*supports)(gw_dtype dtype, gw_redop op);
    /* NULL, and why, where it cannot be started. The buffers are lent until done() returns true, or reset(). */
    gw_native_task *(*start)(gw_transport *transport, const void *in, void *out, size_t count, gw_dtype dtype,
                             gw_redop op, gw_error *error);
    /* True when it has ended and the task is freed; *error says if it failed. */
    bool (*done)(gw_transport *transport, gw_native_task *task, gw_error *error);
} gw_native;

typedef struct gw_transport_ops {
    const char *name;
    size_t chunk_bytes; /* the best message size; 0: the engine chooses */
    bool writes_there;  /* one-sided: writes into the buffers that grants name; a message without a grant costs more */
    bool ordered;       /* DATA frames of one peer and urgency keep their order */
    bool hangs_up;      /* calls lost() when a peer closes its end, once all that the peer sent has arrived */
    /* Queues a packet; it may send it, and call sent(), at once. Connects first where there is no connection yet. */
    void (*send)(gw_transport *transport, int peer, gw_packet *packet);
    /* The engine no longer needs a view that it got from arrived(). */
    void (*release)(gw_transport *transport, int peer, uint64_t ticket);
    /* Makes all progress that is possible without blocking. True if there was any. */
    bool (*poll)(gw_transport *transport, gw_time now);
    /* The descriptor to sleep on: readable when poll() would find something. -1: none. */
    int (*wait_fd)(gw_transport *transport);
    /* The caller goes to sleep on wait_fd (true), or is awake again (false). Returns true if something arrived in the
     * meantime, so that poll() must be called once more before sleeping. */
    bool (*arm)(gw_transport *transport, bool sleeping);
    /* Drops all links, all queued packets (without sent()) and all receive buffers: after it the transport touches no
     * memory of the engine or the user. Links are made again when next used, with the given generation, which must be
     * the same on both sides. */
    void (*reset)(gw_transport *transport, uint32_t generation);
    void (*close)(gw_transport *transport);
    /* The peer's process has ended, or it has left the job: do not wait for it. NULL: not needed. */
    void (*gone)(gw_transport *transport, int peer);
    /* For transports that use sockets of the connection manager (tcp.h); NULL for others. From any thread. */
    void (*adopt)(gw_transport *transport, int peer, int stream, uint32_t generation, int fd, bool dialled,
                  const gw_traffic_keys *keys); /* lent for the call */
    void (*refused)(gw_transport *transport, int peer, uint32_t generation, gw_status status, const char *detail);
    const gw_native *native; /* NULL: it only sends messages */
} gw_transport_ops;

/* Asks the connection manager for a connection of this generation to peer, from within send(). The answer is adopt() or
 * refused(), from any thread, at any time, also before the call returns. Does not block. */
typedef void (*gw_dial)(void *ctx, int peer, int stream, uint32_t generation);

/* Every transport's struct begins with this. */
struct gw_transport {
    const gw_transport_ops *ops;
    gw_sink sink;
};

#endif
