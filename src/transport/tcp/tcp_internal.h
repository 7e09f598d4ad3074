/* tcp_internal.h - the state of the tcp transport, shared by tcp.c and tcp_outgoing.c only. */
#ifndef GW_TRANSPORT_TCP_TCP_INTERNAL_H
#define GW_TRANSPORT_TCP_TCP_INTERNAL_H

#include "bootstrap/congestion.h"
#include "transport/tcp/tcp.h"
#include "transport/tcp/tcp_connection.h"

#include <stdatomic.h>

/* The sending side of one stream to one peer. */
typedef struct gw_tcp_out_stream {
    gw_packet_queue queue;
    gw_tcp_conn *out; /* its connection; NULL: none yet. Only reset() changes it */
    int peer;
    int conns;     /* that this generation has had for it */
    bool wanting;  /* has packets, and waits for the peer to dial */
    gw_time since; /* when poll() first saw it wanting; 0: not yet */
    bool dialled;  /* asked for a connection */
    bool flushing; /* flush() is running: a send() from within a callback only queues */
    bool listed;   /* in the backlog */
    bool blocked;  /* the socket is full: epoll reports when it takes bytes again */
} gw_tcp_out_stream;

typedef struct gw_tcp {
    gw_transport base;
    int rank, world, streams;
    char congestion[GW_CONGESTION_BYTES];
    size_t socket_buffer; /* bytes, 0: the kernel's choice */
    bool *summed;         /* by peer: a checksum covers messages with it; constant */
    gw_dial dial;
    void *dial_ctx;
    uint32_t generation;
    int epoll, bell;                /* the bell is an eventfd in epoll; its event has no connection */
    _Atomic(gw_tcp_conn *) mailbox; /* any thread pushes, latest first; poll() takes all */
    gw_tcp_conn *pending;           /* of later generations */
    gw_tcp_conn *open;              /* of this generation, ended ones included */
    bool surplus;                   /* a connection was refused because its peer had enough: said once */
    bool unsettled;                 /* some connection has ended and settle() has not yet seen it */
    bool inside;                    /* poll() is running */
    unsigned polls;                 /* counted for DIRECT_TURNS */
    gw_time look;                   /* when the congestion control is to be looked at again */
    gw_tcp_conn *last_read;         /* of a single peer with one stream: the connection last read; NULL: none */
    bool *lost;                     /* by peer: lost() was called */
    gw_tcp_out_stream *streams_out; /* streams_out[peer * streams + stream] */
    int wanting;                    /* number of streams_out that are `wanting` */
    gw_tcp_out_stream **backlog;    /* streams_out with packets and a connection */
    int backlog_count;
} gw_tcp;

/* tcp_outgoing.c. */

/* Has epoll report what comes, and, with `out`, when the socket takes bytes again. */
void gw_tcp_watch(gw_tcp *t, gw_tcp_conn *conn, int operation, bool out);
/* The stream waits for the peer to dial, or no longer. */
void gw_tcp_want(gw_tcp *t, gw_tcp_out_stream *l, bool wanting);
/* Sends packets while the socket takes bytes. True if it sent any. */
bool gw_tcp_flush(gw_tcp *t, gw_tcp_out_stream *l);
bool gw_tcp_flush_backlog(gw_tcp *t);
/* Dials peers that should have dialled. */
bool gw_tcp_dial_overdue(gw_tcp *t, gw_time now);
void gw_tcp_send(gw_transport *transport, int peer, gw_packet *packet);

#endif
