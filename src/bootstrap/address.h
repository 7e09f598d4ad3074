/* address.h - an internet address with its port, as text and on the wire; names are resolved here. */
#ifndef GW_BOOTSTRAP_ADDRESS_H
#define GW_BOOTSTRAP_ADDRESS_H

#include "base/status.h"

#include <netinet/in.h>
#include <sys/socket.h>

#define GW_ADDRESS_TEXT 80       /* such as "[fe80::1%enp1s0f0np0]:29500" */
#define GW_ADDRESS_WIRE_BYTES 20 /* family, zero, port, 16 bytes of address */
#define GW_HOST_TEXT 256

typedef union gw_address {
    struct sockaddr any; /* any.sa_family: AF_INET or AF_INET6; AF_UNSPEC: none */
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
} gw_address;

socklen_t gw_address_bytes(const gw_address *address);
int gw_address_port(const gw_address *address);
void gw_address_set_port(gw_address *address, int port);
bool gw_address_loopback(const gw_address *address);                 /* 127.0.0.0/8, ::1 */
bool gw_address_link_local(const gw_address *address);               /* 169.254.0.0/16, fe80::/10 */
bool gw_address_same_host(const gw_address *a, const gw_address *b); /* ports are not compared */

/* "10.0.0.1:29500", "[::1]:29500". Writes into text and returns it. */
const char *gw_address_text(const gw_address *address, char text[GW_ADDRESS_TEXT]);
/* The same without port and brackets. */
const char *gw_address_host_text(const gw_address *address, char text[GW_ADDRESS_TEXT]);

/* A literal, "10.0.0.1", "::1", "[::1]" or "fe80::1%eth0", no name. Port 0. */
bool gw_address_literal(const char *text, gw_address *address);
/* "host", "host:port", "::1", "[::1]", "[::1]:port": host without brackets, port -1 if none is given. */
bool gw_address_split(const char *text, char host[GW_HOST_TEXT], int *port);
/* All addresses of a name or literal, port 0. *count <= room. Asks the system's resolver, which has its own deadline.
 */
gw_status gw_address_resolve(const char *host, gw_address *list, int room, int *count, gw_error *error);
/* "29500-29599" or "29500". */
gw_status gw_ports_parse(const char *text, int *low, int *high, gw_error *error);

void gw_address_write(const gw_address *address, uint8_t bytes[GW_ADDRESS_WIRE_BYTES]);
/* False if one cannot connect to it (unknown family, port 0, unspecified, stray bytes). */
bool gw_address_read(gw_address *address, const uint8_t bytes[GW_ADDRESS_WIRE_BYTES]);

#endif
