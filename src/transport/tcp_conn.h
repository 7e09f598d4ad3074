/* tcp_conn.h - one TCP connection: frames out of a queue into the socket, and out of the socket to where they belong.
 *
 * Small frames are read many at a time into the connection's buffer and copied from there; a large payload is read
 * straight into its landing, together with the header that follows it. Either way a message costs one system call. What
 * is added up as it comes goes through the buffer too, and is still in the cache when it is. */
#ifndef GW_TRANSPORT_TCP_CONN_H
#define GW_TRANSPORT_TCP_CONN_H

#include "transport/queue.h"

#include <stdalign.h>

#define GW_TCP_BUFFER_BYTES (((size_t)128 << 10) + GW_FRAME_BYTES) /* half a chunk, and the header behind it */
#define GW_TCP_DETAIL_BYTES 256

typedef struct gw_tcp_conn {
    struct gw_tcp_conn *next; /* in the one list that holds it */
    int fd;                   /* -1: closed, or never was (a refusal) */
    int peer, stream;
    uint32_t generation;
    gw_status status;                 /* GW_OK while it can be read; afterwards why not */
    bool orderly;                     /* it ended between two frames, by the peer's choice */
    bool mute;                        /* it takes no more bytes, but may still have some for us */
    bool polling_out;                 /* epoll reports when it takes bytes again */
    char detail[GW_TCP_DETAIL_BYTES]; /* a clause that goes with status */

    gw_frame frame;    /* being received */
    uint8_t *landing;  /* where its payload begins; NULL: none, or it is used piece by piece */
    bool piecewise;
    uint64_t left;     /* bytes of it still to come; 0: a header is next, and begins at buffer[0] */
    size_t end;        /* bytes in buffer */
    uint64_t low_water; /* the kernel tells of no fewer bytes; 1 while somebody is awake */
    size_t turn;       /* bytes that leave at once at most */
    size_t ahead;      /* bytes of buffer to fill at once: all of it after a small frame, a header after a large one */
    alignas(64) uint8_t buffer[]; /* GW_TCP_BUFFER_BYTES; a refusal has none */
} gw_tcp_conn;

typedef enum gw_tcp_flow {
    GW_TCP_MOVED,   /* the queue may hold more */
    GW_TCP_BLOCKED, /* the socket takes no more for now */
    GW_TCP_BROKEN,  /* it never will; the connection says why, now or when it has been read to its end */
} gw_tcp_flow;

/* Takes fd. NULL when memory ran out; fd is then untouched. */
gw_tcp_conn *gw_tcp_conn_make(int peer, int stream, uint32_t generation, int fd);
/* Sets the socket's options before it is used: congestion as in gw_tcp_options; buffer: bytes, 0: the kernel's choice.
 * rank: this one, for the log. */
void gw_tcp_conn_prepare(gw_tcp_conn *conn, int rank, const char *congestion, size_t buffer);
/* A connection that ended before it began. NULL when memory ran out. */
gw_tcp_conn *gw_tcp_conn_refusal(int peer, uint32_t generation, gw_status status, const char *detail);
void gw_tcp_conn_free(gw_tcp_conn *conn); /* closes */

/* Each moves what can be moved without blocking, about a MiB at most, and tells the sink. read: true if anything came
 * or the connection ended. write: the queue is not empty, and send() may add to it from within. */
bool gw_tcp_conn_read(gw_tcp_conn *conn, const gw_sink *sink);
gw_tcp_flow gw_tcp_conn_write(gw_tcp_conn *conn, gw_packet_queue *queue, const gw_sink *sink, bool *moved);

/* Whoever waits for it goes to sleep, or is awake again. A sleeper is not woken by every segment of a payload. */
void gw_tcp_conn_doze(gw_tcp_conn *conn, bool sleeping);

#endif
