/* address.c - see address.h. */
#include "bootstrap/address.h"

#include "base/little_endian.h"
#include "base/units.h"

#include <arpa/inet.h>
#include <net/if.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>

socklen_t gw_address_bytes(const gw_address *address) {
    return address->any.sa_family == AF_INET6 ? sizeof address->v6 : sizeof address->v4;
}

int gw_address_port(const gw_address *address) {
    return ntohs(address->any.sa_family == AF_INET6 ? address->v6.sin6_port : address->v4.sin_port);
}

void gw_address_set_port(gw_address *address, int port) {
    if (address->any.sa_family == AF_INET6) address->v6.sin6_port = htons((uint16_t)port);
    else address->v4.sin_port = htons((uint16_t)port);
}

bool gw_address_loopback(const gw_address *address) {
    if (address->any.sa_family == AF_INET6) return IN6_IS_ADDR_LOOPBACK(&address->v6.sin6_addr);
    return ntohl(address->v4.sin_addr.s_addr) >> 24 == 127;
}

bool gw_address_link_local(const gw_address *address) {
    if (address->any.sa_family == AF_INET6) return IN6_IS_ADDR_LINKLOCAL(&address->v6.sin6_addr);
    return ntohl(address->v4.sin_addr.s_addr) >> 16 == 0xa9fe;
}

bool gw_address_same_host(const gw_address *a, const gw_address *b) {
    if (a->any.sa_family != b->any.sa_family) return false;
    if (a->any.sa_family == AF_INET6) return memcmp(&a->v6.sin6_addr, &b->v6.sin6_addr, 16) == 0;
    return a->v4.sin_addr.s_addr == b->v4.sin_addr.s_addr;
}

const char *gw_address_host_text(const gw_address *address, char text[GW_ADDRESS_TEXT]) {
    if (address->any.sa_family == AF_INET6) {
        char scope[IF_NAMESIZE];
        inet_ntop(AF_INET6, &address->v6.sin6_addr, text, GW_ADDRESS_TEXT);
        size_t length = strlen(text);
        if (address->v6.sin6_scope_id && if_indextoname(address->v6.sin6_scope_id, scope))
            snprintf(text + length, GW_ADDRESS_TEXT - length, "%%%s", scope);
    } else if (address->any.sa_family == AF_INET) {
        inet_ntop(AF_INET, &address->v4.sin_addr, text, GW_ADDRESS_TEXT);
    } else {
        snprintf(text, GW_ADDRESS_TEXT, "nowhere");
    }
    return text;
}

const char *gw_address_text(const gw_address *address, char text[GW_ADDRESS_TEXT]) {
    char host[GW_ADDRESS_TEXT];
    gw_address_host_text(address, host);
    bool v6 = address->any.sa_family == AF_INET6;
    snprintf(text, GW_ADDRESS_TEXT, v6 ? "[%.66s]:%d" : "%.66s:%d", host, gw_address_port(address));
    return text;
}

static bool lookup(const char *host, int flags, struct addrinfo **found, int *code) {
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = flags};
    *code = getaddrinfo(host, NULL, &hints, found);
    return *code == 0;
}

static bool keep(const struct addrinfo *entry, gw_address *address) {
    if (entry->ai_family != AF_INET && entry->ai_family != AF_INET6) return false;
    memset(address, 0, sizeof *address);
    memcpy(address, entry->ai_addr, entry->ai_addrlen);
    return true;
}

bool gw_address_literal(const char *text, gw_address *address) {
    char host[GW_HOST_TEXT];
    int port, code;
    struct addrinfo *found;
    if (!gw_address_split(text, host, &port) || port >= 0 || !strpbrk(host, ".:")) return false;
    if (!lookup(host, AI_NUMERICHOST, &found, &code)) return false;
    bool ok = keep(found, address);
    freeaddrinfo(found);
    return ok;
}

bool gw_address_split(const char *text, char host[GW_HOST_TEXT], int *port) {
    const char *begin = text, *end = text + strlen(text), *rest = end;
    if (text[0] == '[') {
        end = strchr(text, ']');
        if (!end) return false;
        begin = text + 1;
        rest = end + 1;
    } else {
        const char *colon = strchr(text, ':');
        if (colon && !strchr(colon + 1, ':')) rest = end = colon; /* two colons: an IPv6 literal, no port */
    }
    size_t length = (size_t)(end - begin);
    if (length == 0 || length >= GW_HOST_TEXT) return false;
    int64_t number = -1;
    if (rest[0] && (rest[0] != ':' || !gw_integer_parse(rest + 1, 1, 65535, &number))) return false;
    memcpy(host, begin, length);
    host[length] = 0;
    *port = (int)number;
    return true;
}

gw_status gw_address_resolve(const char *host, gw_address *list, int room, int *count, gw_error *error) {
    struct addrinfo *found;
    int code, kept = 0;
    if (!lookup(host, 0, &found, &code))
        return gw_fail(error, GW_INVALID, "the name %s cannot be resolved (%s): check MASTER_ADDR", host,
                       gai_strerror(code));
    for (const struct addrinfo *entry = found; entry && kept < room; entry = entry->ai_next)
        if (keep(entry, &list[kept])) kept++;
    freeaddrinfo(found);
    if (kept == 0) return gw_fail(error, GW_INVALID, "the name %s has no internet address: check MASTER_ADDR", host);
    *count = kept;
    return GW_OK;
}

gw_status gw_ports_parse(const char *text, int *low, int *high, gw_error *error) {
    char first[16];
    int64_t from, to;
    const char *dash = strchr(text, '-');
    size_t length = dash ? (size_t)(dash - text) : strlen(text);
    snprintf(first, sizeof first, "%.*s", (int)(length < sizeof first ? length : sizeof first), text);
    bool ok = gw_integer_parse(first, 1, 65535, &from);
    to = from;
    if (ok && dash) ok = gw_integer_parse(dash + 1, from, 65535, &to);
    if (!ok)
        return gw_fail(error, GW_INVALID, "\"%s\" is no range of ports: write it like 29500-29599 (1 to 65535)", text);
    *low = (int)from;
    *high = (int)to;
    return GW_OK;
}

void gw_address_write(const gw_address *address, uint8_t bytes[GW_ADDRESS_WIRE_BYTES]) {
    memset(bytes, 0, GW_ADDRESS_WIRE_BYTES);
    bool v6 = address->any.sa_family == AF_INET6;
    bytes[0] = v6 ? 6 : 4;
    gw_le_put(bytes + 2, (uint64_t)gw_address_port(address), 2);
    if (v6) memcpy(bytes + 4, &address->v6.sin6_addr, 16);
    else memcpy(bytes + 4, &address->v4.sin_addr, 4);
}

bool gw_address_read(gw_address *address, const uint8_t bytes[GW_ADDRESS_WIRE_BYTES]) {
    static const uint8_t zeros[16];
    if ((bytes[0] != 4 && bytes[0] != 6) || bytes[1] != 0 || gw_le_get16(bytes + 2) == 0) return false;
    if (memcmp(bytes + 4, zeros, 16) == 0) return false;
    gw_address read = {0};
    if (bytes[0] == 6) {
        read.v6.sin6_family = AF_INET6;
        memcpy(&read.v6.sin6_addr, bytes + 4, 16);
    } else {
        if (memcmp(bytes + 8, zeros, 12) != 0) return false;
        read.v4.sin_family = AF_INET;
        memcpy(&read.v4.sin_addr, bytes + 4, 4);
    }
    gw_address_set_port(&read, gw_le_get16(bytes + 2));
    *address = read;
    return true;
}
