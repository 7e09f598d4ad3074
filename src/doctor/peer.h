/* peer.h - what two hosts find out about the way between them, over connections that have proved the token. One end
 * asks (measure.c), the other serves (peer.c); both block, each in a thread of its own, and every wait has a deadline.
 *
 * A request and a reply have a fixed size, numbers in little endian. */
#ifndef GW_DOCTOR_PEER_H
#define GW_DOCTOR_PEER_H

#include "doctor/datagram.h"
#include "doctor/report.h"

/* Connections of one measurement. */
enum { GW_PEER_TALK, GW_PEER_SINK, GW_PEER_SOURCE, GW_PEER_STREAMS };

typedef enum gw_peer_kind {
    GW_PEER_PING = 1, /* reply: number[0] the wall clock, nanoseconds */
    GW_PEER_WHO,      /* reply: text is the asking side's address as seen here */
    GW_PEER_PACKETS,  /* argument: UDP port of the asking side; reply: number[0] ours, 0: none */
    GW_PEER_HEARD,    /* argument: packet size; reply: number[0] 1 if such a packet came */
    GW_PEER_SHOUT,    /* argument: packet size; packets of it are sent, then the reply */
    GW_PEER_TAKE,     /* from here on the asking side sends; reply: bytes and nanoseconds of the timed part */
    GW_PEER_GIVE      /* from here on we send, until the other side closes */
} gw_peer_kind;

typedef struct gw_peer_request {
    uint32_t kind, argument;
    uint8_t cookie[GW_COOKIE_BYTES];
} gw_peer_request;

typedef struct gw_peer_reply {
    uint64_t number[2];
    char text[GW_DOCTOR_ADDRESS_BYTES];
} gw_peer_reply;

#define GW_PEER_WAIT (2 * GW_SECOND)               /* for an answer */
#define GW_PACKET_WAIT (100 * GW_MILLISECOND)      /* for a packet that was sent already */
#define GW_FLOW_BYTES (128 << 10)                  /* moved by one call */

/* Bytes that arrive in a fixed time, after TCP had time to find its pace. False: nothing came at all. */
bool gw_flow_count(int fd, char *buffer, uint64_t *bytes, uint64_t *nanoseconds);

/* Serves until the other side closes or is silent for too long. Closes fd. */
void gw_peer_serve(int fd);

typedef struct gw_peer_figures {
    double latency, latency_best; /* seconds, half a round trip */
    double skew;                  /* seconds that the other clock is ahead */
    double out, in;               /* bytes per second; 0: it stalls */
    int mtu_out, mtu_in;          /* 0: unknown */
    char local[GW_DOCTOR_ADDRESS_BYTES], seen[GW_DOCTOR_ADDRESS_BYTES]; /* of this side, here and there */
    char remote[GW_DOCTOR_ADDRESS_BYTES];                               /* of the other side, as seen here */
} gw_peer_figures;

/* mtu: the smaller of both ends'. False: the conversation broke off. Leaves the sockets open. */
bool gw_peer_measure(const int fds[GW_PEER_STREAMS], int mtu, gw_peer_figures *figures);

#endif
