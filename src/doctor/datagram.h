/* datagram.h - packets of a chosen size that no router may cut, between the two ends of a TCP connection. Only those
 * that begin with the cookie agreed upon over that connection count. */
#ifndef GW_DOCTOR_DATAGRAM_H
#define GW_DOCTOR_DATAGRAM_H

#include "doctor/socket.h"

#define GW_COOKIE_BYTES 16
#define GW_PACKET_MAX 65535 /* bytes, headers included */
#define GW_PACKET_MIN 128

typedef struct gw_datagrams {
    int fd; /* -1: closed */
    int headers; /* bytes of IP and UDP */
    uint8_t cookie[GW_COOKIE_BYTES];
    char *bytes; /* GW_PACKET_MAX, owned */
} gw_datagrams;

/* Bound to the connection's own address; *port is what the other side has to know. */
bool gw_datagrams_open(gw_datagrams *d, int connection, const uint8_t cookie[GW_COOKIE_BYTES], int *port);
/* Towards the other end of the connection, at its port; packets from elsewhere are not received. */
bool gw_datagrams_connect(gw_datagrams *d, int connection, int port);
/* A few packets of this size, headers included. */
void gw_datagrams_send(const gw_datagrams *d, int size);
/* Whether a packet of this size comes before the deadline. */
bool gw_datagrams_heard(const gw_datagrams *d, int size, gw_time deadline);
void gw_datagrams_close(gw_datagrams *d);

#endif
