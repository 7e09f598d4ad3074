/* datagram.h - UDP packets of a chosen size that must not be fragmented, between the two ends of a TCP connection. A
 * packet counts only if it begins with the cookie that was agreed over that connection. */
#ifndef GW_DOCTOR_DATAGRAM_H
#define GW_DOCTOR_DATAGRAM_H

#include "doctor/socket.h"

#define GW_COOKIE_BYTES 16
#define GW_PACKET_MAX 65535 /* bytes, headers included */
#define GW_PACKET_MIN 128

typedef struct gw_datagrams {
    int fd;      /* -1: closed */
    int headers; /* bytes of IP and UDP */
    uint8_t cookie[GW_COOKIE_BYTES];
    char *bytes; /* GW_PACKET_MAX, owned */
} gw_datagrams;

/* Opens a UDP socket at the connection's local address. The caller must send *port to the other side. */
bool gw_datagrams_open(gw_datagrams *d, int connection, const uint8_t cookie[GW_COOKIE_BYTES], int *port);
/* Connects to the other end of the connection, at its UDP port. Packets from elsewhere are not received. */
bool gw_datagrams_connect(gw_datagrams *d, int connection, int port);
/* Sends a few packets of this size, headers included. */
void gw_datagrams_send(const gw_datagrams *d, int size);
/* Whether a packet of this size arrives before the deadline. */
bool gw_datagrams_arrived(const gw_datagrams *d, int size, gw_time deadline);
void gw_datagrams_close(gw_datagrams *d);

#endif
