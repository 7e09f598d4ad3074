/* tcp_connection.h - one TCP connection: frames from a queue into the socket, and from the socket to their buffers.
 *
 * Small frames are read many at a time into the connection's buffer and copied from there. A large payload is read
 * directly into its receive buffer, together with the header that follows it. Either way a message costs one system
 * call. A payload that is reduced on arrival goes through the connection's buffer too: it is still in the cache then.
 *
 * With a guard (tcp_guard.h) a record is used once it is whole and verified: a header is believed, a part handed over
 * and arrived() called only then. Until then the bytes of a payload may lie in their receive buffer. */
#ifndef GW_TRANSPORT_TCP_TCP_CONNECTION_H
#define GW_TRANSPORT_TCP_TCP_CONNECTION_H

#include "transport/send_queue.h"
#include "transport/tcp/tcp_batch.h"
#include "transport/tcp/tcp_congestion.h"

#include <stdalign.h>

/* A record with its tag, and the header after it with its own; whole cache lines. */
#define GW_TCP_BUFFER_BYTES (GW_TCP_RECORD_BYTES + 2 * GW_FRAME_BYTES)
#define GW_TCP_DETAIL_BYTES 256

typedef struct gw_tcp_conn {
    struct gw_tcp_conn *next; /* in the one list that holds it */
    int fd;                   /* -1: closed, or never open (a refusal) */
    int peer, stream;
    uint32_t generation;
    gw_status status;                 /* GW_OK while it can be read; afterwards why not */
    bool orderly;                     /* the peer closed it, between two frames */
    bool mute;                        /* it cannot be written any more, but may still have bytes to read */
    bool polling_out;                 /* epoll reports when it takes bytes again */
    char detail[GW_TCP_DETAIL_BYTES]; /* a clause that goes with status */

    gw_frame frame;       /* being received */
    uint8_t *recv_buffer; /* of its payload; NULL: none, or the engine takes it in parts */
    bool by_parts;        /* sink.part takes the payload */
    uint64_t left;        /* bytes of it still to be used; 0: a header is next, and begins at buffer[0] */
    size_t in_place;      /* bytes of the next record that are in recv_buffer, not yet verified */
    size_t end;           /* bytes in buffer */
    uint64_t low_water;   /* SO_RCVLOWAT: the kernel reports no fewer bytes; 1 while the poller is awake */
    size_t turn;          /* most bytes written at once */
    bool flows;           /* the socket took all of the last turn: with a guard, the next one may be one batch */
    gw_tcp_congestion congestion;
    gw_tcp_guard guard;
    gw_tcp_batch *batch; /* with a guard: what is being sent */
    size_t ahead; /* bytes of buffer to fill at once: all of it after a small frame, a header after a large one */
    alignas(64) uint8_t buffer[]; /* GW_TCP_BUFFER_BYTES; a refusal has none */
} gw_tcp_conn;

typedef enum gw_tcp_flow {
    GW_TCP_MOVED,   /* the queue may hold more */
    GW_TCP_BLOCKED, /* the socket takes no more for now */
    GW_TCP_BROKEN,  /* it never will again; conn->status says why, now or after the last read */
} gw_tcp_flow;

/* Takes ownership of fd, and of the guard. NULL: out of memory, and both are untouched. */
gw_tcp_conn *gw_tcp_conn_make(int peer, int stream, uint32_t generation, int fd, const gw_tcp_guard *guard);
/* Sets the socket's options before its first use. congestion: as in gw_tcp_options; buffer: bytes, 0: the kernel's
 * choice; rank: our own, for the log. */
void gw_tcp_conn_prepare(gw_tcp_conn *conn, int rank, const char *congestion, size_t buffer);
/* A connection that could not be made. NULL: out of memory. */
gw_tcp_conn *gw_tcp_conn_refusal(int peer, uint32_t generation, gw_status status, const char *detail);
void gw_tcp_conn_free(gw_tcp_conn *conn); /* closes */

/* Each moves what it can without blocking, about a MiB at most, and calls the sink. read: true if anything came or the
 * connection ended. write: the queue must not be empty; send() may add to it from within. */
bool gw_tcp_conn_read(gw_tcp_conn *conn, const gw_sink *sink);
gw_tcp_flow gw_tcp_conn_write(gw_tcp_conn *conn, gw_packet_queue *queue, const gw_sink *sink, bool *moved);

/* As gw_transport_ops.unanswered, for one connection (tcp_unanswered.c); packets: keeps the worst one. */
bool gw_tcp_unanswered(int fd, gw_unanswered *packets);

/* The poller goes to sleep, or is awake again. A sleeping one is not woken by every segment of a payload. */
void gw_tcp_conn_doze(gw_tcp_conn *conn, bool sleeping);

#endif
