/* transport.h - what carries frames between this rank and its peers.
 *
 * A transport is polled: nothing happens but inside its functions, none of them blocks, sleeps or reads a clock, and
 * all are called by one thread at a time (the holder of the engine's lane). DATA frames of the same urgency
 * from one peer arrive in the order sent where the transport says `ordered`, otherwise in any order; other frames may
 * overtake them. Nothing is lost or doubled while the peer lives.
 *
 * The engine guarantees that it sends DATA only where the receiver has landing space (grants and eager credits,
 * engine/flow.h), so a transport always may deliver what came, and never has to buffer payloads of its own accord. */
#ifndef GW_TRANSPORT_H
#define GW_TRANSPORT_H

#include "base/clock.h"
#include "base/status.h"
#include "transport/frame.h"

/* What a few bytes announce, as grants and credits do; what others wait for before they can send themselves. */
#define GW_URGENT_SIGNAL 255

/* One frame on its way out. Owned by the engine, lent to the transport from send() until sent(). */
typedef struct gw_packet {
    gw_frame frame;
    const void *data;       /* frame.length bytes, lent too */
    struct gw_packet *next; /* the transport's, while queued */
    void *owner;            /* the engine's */
    uint64_t progress;      /* the transport's: bytes already handed to the kernel, or its own position */
    uint8_t urgency;        /* of DATA: it may overtake what waits for the same peer and has less */
    uint64_t first;         /* of a GRANT: it adds the messages first..frame.index-1 to those granted before */
} gw_packet;

/* What a transport tells the engine, from within poll() or send(). */
typedef struct gw_sink {
    void *ctx;
    /* A DATA frame begins: where its payload is to be put (frame->length bytes), NULL if there is no place: the
     * connection then fails with GW_PROTOCOL. The place belongs to the connection that asked, until the message has
     * arrived or the connection has ended: no other is given it, and a connection that ended writes there no more. Not
     * asked for where a transport calls arrived() with the peer's own
     * memory instead, or where piece() has taken the payload. */
    void *(*landing)(void *ctx, int peer, const gw_frame *frame);
    /* Bytes of a DATA frame's payload, from `at` on, to be looked at during this call only. False, for the first of
     * them: the payload must be landed. True: this one has been used, and all others are given in the same way, in
     * their order; arrived() comes last, with data NULL. The first may have no bytes: it only asks. May be NULL. Only
     * for transports that copy (shm, tcp), in pieces of whole elements of any type. */
    bool (*piece)(void *ctx, int peer, const gw_frame *frame, uint64_t at, const void *data, uint64_t bytes);
    /* The frame and its payload are here. data is what landing() gave, or, for a transport that shows the sender's
     * memory, a view that stays valid until release(peer, ticket) (ticket 0: nothing to release). */
    void (*arrived)(void *ctx, int peer, const gw_frame *frame, const void *data, uint64_t ticket);
    /* The packet and its data may be reused. */
    void (*sent)(void *ctx, int peer, gw_packet *packet);
    /* The link to this peer is gone; said once. detail is a clause ("connection reset by peer"). */
    void (*lost)(void *ctx, int peer, gw_status status, const char *detail);
    /* Where a message that this GRANT packet promises will land (*bytes of room), NULL if it has come or comes
     * elsewhere. Only for transports that tell the sender where to write (rdma), while the packet is theirs. */
    void *(*granted)(void *ctx, int peer, const gw_packet *grant, uint64_t index, uint64_t *bytes);
} gw_sink;

typedef struct gw_transport gw_transport;
typedef struct gw_native_task gw_native_task;

/* A library under a transport that can carry out a whole all-reduce (arch=mpi). All ranks of the job start the same
 * ones in the same order. */
typedef struct gw_native {
    bool (*carries)(gw_dtype dtype, gw_redop op);
    /* NULL, and why, where it cannot be started. The buffers are lent until done() says so, or reset(). */
    gw_native_task *(*start)(gw_transport *transport, const void *in, void *out, size_t count, gw_dtype dtype,
                             gw_redop op, gw_error *error);
    /* True when it is over, and the task is no more; *error says if it failed. */
    bool (*done)(gw_transport *transport, gw_native_task *task, gw_error *error);
} gw_native;

typedef struct gw_transport_ops {
    const char *name;
    size_t chunk_bytes; /* messages of this size suit it best; 0: the engine's choice */
    bool writes_there; /* into the landings that grants tell of: without one a message costs more */
    bool ordered;
    bool hangs_up; /* says lost() by itself, after everything else, when a peer closes its end */
    /* Queues a packet; it may be sent, and sent() called, at once. Connects first where there is no connection yet. */
    void (*send)(gw_transport *transport, int peer, gw_packet *packet);
    /* The engine has done with a view that arrived() showed. */
    void (*release)(gw_transport *transport, int peer, uint64_t ticket);
    /* Moves what can be moved. True if anything did. */
    bool (*poll)(gw_transport *transport, gw_time now);
    /* About to sleep: an fd that becomes readable when poll() would find something. -1: none. */
    int (*wait_fd)(gw_transport *transport);
    /* Asks to be woken through wait_fd (true), or no longer (false). True if poll() should be called once more before
     * sleeping, because something came in the meantime. */
    bool (*arm)(gw_transport *transport, bool sleeping);
    /* Drops all links, gives every queued packet back (no sent() calls) and forgets landings: after it the transport
     * touches no memory of the engine or the user. Links are made anew when next used, with the given generation
     * (both sides must agree). */
    void (*reset)(gw_transport *transport, uint32_t generation);
    void (*close)(gw_transport *transport);
    /* The peer's process has ended, or it has left the job: nothing is to be waited for. NULL: that changes nothing. */
    void (*gone)(gw_transport *transport, int peer);
    /* For transports that need connections of the gateway (tcp.h says more); NULL for others. From any thread. */
    void (*adopt)(gw_transport *transport, int peer, int stream, uint32_t generation, int fd, bool dialled);
    void (*refused)(gw_transport *transport, int peer, uint32_t generation, gw_status status, const char *detail);
    const gw_native *native; /* NULL: it only carries messages */
} gw_transport_ops;

/* How such a transport asks for a connection of this generation to peer, from within send(). Answered by adopt or
 * refused, from any thread, at any time, also from within. Does not block. */
typedef void (*gw_dial)(void *ctx, int peer, int stream, uint32_t generation);

/* Every transport's struct begins with this. */
struct gw_transport {
    const gw_transport_ops *ops;
    gw_sink sink;
};

#endif
