/* probe_peer.h - measuring the path between two hosts, over authenticated connections. One end is the client
 * (doctor_measure.c), the other the server (probe_peer.c). Both block, each in its own thread, and every wait has a
 * deadline.
 *
 * Requests and replies have a fixed size; numbers are little-endian. */
#ifndef GW_DOCTOR_PROBE_PEER_H
#define GW_DOCTOR_PROBE_PEER_H

#include "doctor/datagram.h"
#include "doctor/report.h"

/* Connections of one measurement. */
enum { GW_PEER_TALK, GW_PEER_SINK, GW_PEER_SOURCE, GW_PEER_STREAMS };

typedef enum gw_peer_kind {
    GW_PEER_PING = 1, /* reply: number[0] the wall clock, nanoseconds */
    GW_PEER_WHO,      /* reply: text is the client's address as seen here */
    GW_PEER_PACKETS,  /* argument: the client's UDP port; reply: number[0] ours, 0: none */
    GW_PEER_ARRIVED,  /* argument: packet size; reply: number[0] 1 if such a packet arrived */
    GW_PEER_SEND,     /* argument: packet size; such packets are sent, then the reply */
    GW_PEER_TAKE,     /* from now on the client sends; reply: bytes and nanoseconds of the timed part */
    GW_PEER_GIVE      /* from now on the server sends, until the client closes */
} gw_peer_kind;

typedef struct gw_peer_request {
    uint32_t kind, argument;
    uint8_t cookie[GW_COOKIE_BYTES];
} gw_peer_request;

typedef struct gw_peer_reply {
    uint64_t number[2];
    char text[GW_DOCTOR_ADDRESS_BYTES];
} gw_peer_reply;

#define GW_PEER_WAIT (2 * GW_SECOND)          /* for an answer */
#define GW_PACKET_WAIT (100 * GW_MILLISECOND) /* for a packet that has been sent */
#define GW_FLOW_BYTES (128 << 10)             /* moved by one call */

/* Counts the bytes that arrive in a fixed time, after a warm-up for TCP. False: nothing arrived. */
bool gw_flow_count(int fd, char *buffer, uint64_t *bytes, uint64_t *nanoseconds);

/* Serves until the client closes or is silent for 10 s. Closes fd. */
void gw_peer_serve(int fd);

typedef struct gw_peer_figures {
    double latency, latency_best;                                       /* seconds, half a round trip */
    double skew;                                                        /* seconds that the peer's clock is ahead */
    double out, in;                                                     /* bytes per second; 0: stalled */
    int mtu_out, mtu_in;                                                /* 0: unknown */
    char local[GW_DOCTOR_ADDRESS_BYTES], seen[GW_DOCTOR_ADDRESS_BYTES]; /* this side's address, here and at the peer */
    char remote[GW_DOCTOR_ADDRESS_BYTES];                               /* the peer's address, as seen here */
} gw_peer_figures;

/* mtu: the smaller of both ends'. False: a connection broke. Leaves the sockets open. */
bool gw_peer_measure(const int fds[GW_PEER_STREAMS], int mtu, gw_peer_figures *figures);

#endif
