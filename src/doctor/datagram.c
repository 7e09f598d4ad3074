/* datagram.c - see datagram.h. */
#include "doctor/datagram.h"

#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { COPIES = 3, UDP_HEADER = 8, IPV4_HEADER = 20, IPV6_HEADER = 40 };

/* The kernel must neither fragment packets nor use a cached path MTU. */
static bool forbid_fragments(int fd, bool v6) {
    int probe4 = IP_PMTUDISC_PROBE, probe6 = IPV6_PMTUDISC_PROBE;
    return v6 ? setsockopt(fd, IPPROTO_IPV6, IPV6_MTU_DISCOVER, &probe6, sizeof probe6) == 0
              : setsockopt(fd, IPPROTO_IP, IP_MTU_DISCOVER, &probe4, sizeof probe4) == 0;
}

bool gw_datagrams_open(gw_datagrams *d, int connection, const uint8_t cookie[GW_COOKIE_BYTES], int *port) {
    gw_address own;
    *d = (gw_datagrams){.fd = -1};
    if (!gw_socket_own(connection, &own)) return false;
    bool v6 = own.any.sa_family == AF_INET6;
    d->headers = UDP_HEADER + (v6 ? IPV6_HEADER : IPV4_HEADER);
    memcpy(d->cookie, cookie, sizeof d->cookie);
    gw_address_set_port(&own, 0);
    d->bytes = calloc(1, GW_PACKET_MAX);
    d->fd = socket(own.any.sa_family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (d->bytes && d->fd >= 0 && forbid_fragments(d->fd, v6) && bind(d->fd, &own.any, gw_address_bytes(&own)) == 0 &&
        gw_socket_own(d->fd, &own)) {
        *port = gw_address_port(&own);
        return true;
    }
    gw_datagrams_close(d);
    return false;
}

bool gw_datagrams_connect(gw_datagrams *d, int connection, int port) {
    gw_address peer;
    if (!gw_socket_peer(connection, &peer)) return false;
    gw_address_set_port(&peer, port);
    return connect(d->fd, &peer.any, gw_address_bytes(&peer)) == 0;
}

void gw_datagrams_send(const gw_datagrams *d, int size) {
    memcpy(d->bytes, d->cookie, sizeof d->cookie);
    for (int i = 0; i < COPIES; i++) /* a failed send counts as a lost packet */
        if (send(d->fd, d->bytes, (size_t)(size - d->headers), MSG_NOSIGNAL) < 0) continue;
}

bool gw_datagrams_arrived(const gw_datagrams *d, int size, gw_time deadline) {
    do {
        ssize_t got;
        while ((got = recv(d->fd, d->bytes, GW_PACKET_MAX, 0)) >= 0)
            if (got == size - d->headers && memcmp(d->bytes, d->cookie, sizeof d->cookie) == 0) return true;
    } while (gw_socket_await(d->fd, POLLIN, deadline) && gw_clock_now() < deadline);
    return false;
}

void gw_datagrams_close(gw_datagrams *d) {
    if (d->fd >= 0) close(d->fd);
    free(d->bytes);
    *d = (gw_datagrams){.fd = -1};
}
