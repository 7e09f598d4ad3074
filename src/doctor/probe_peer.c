/* probe_peer.c - the server end of a measurement. See probe_peer.h. */
#include "doctor/probe_peer.h"

#include <endian.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define IDLE (10 * GW_SECOND) /* for the next request */
#define FIRST_BYTE GW_SECOND  /* for data to begin */
#define WARM_UP (60 * GW_MILLISECOND)
#define TIMED (200 * GW_MILLISECOND)
#define GIVE_AT_MOST (3 * GW_SECOND)

bool gw_flow_count(int fd, char *buffer, uint64_t *bytes, uint64_t *nanoseconds) {
    *bytes = *nanoseconds = 0;
    if (!gw_socket_await(fd, POLLIN, gw_clock_now() + FIRST_BYTE)) return false;
    gw_time warm = gw_clock_now() + WARM_UP, start = 0, last = 0, end = warm + TIMED;
    while (gw_socket_await(fd, POLLIN, end)) {
        ssize_t got = recv(fd, buffer, GW_FLOW_BYTES, MSG_DONTWAIT);
        if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
        if (got <= 0) return false;
        last = gw_clock_now();
        if (start) *bytes += (uint64_t)got;
        else if (last >= warm) start = last;
        if (last >= end) break;
    }
    *nanoseconds = start ? (last >= end ? last : end) - start : TIMED;
    return true;
}

/* A flow that breaks before the timed part counts as no bytes. */
static void take(int fd, gw_peer_reply *reply) {
    char *buffer = malloc(GW_FLOW_BYTES);
    uint64_t bytes = 0, nanoseconds = 0;
    if (buffer) gw_flow_count(fd, buffer, &bytes, &nanoseconds);
    reply->number[0] = htole64(bytes);
    reply->number[1] = htole64(nanoseconds);
    free(buffer);
}

static void give(int fd) {
    gw_time end = gw_clock_now() + GIVE_AT_MOST;
    char *buffer = calloc(1, GW_FLOW_BYTES);
    while (buffer && gw_clock_now() < end && gw_socket_send(fd, buffer, GW_FLOW_BYTES, end)) continue;
    free(buffer);
}

static void tell_clock(gw_peer_reply *reply) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    reply->number[0] = htole64((uint64_t)now.tv_sec * GW_SECOND + (uint64_t)now.tv_nsec);
}

static void tell_who(int fd, gw_peer_reply *reply) {
    gw_address peer;
    char text[GW_ADDRESS_TEXT];
    if (!gw_socket_peer(fd, &peer)) return;
    gw_address_host_text(&peer, text);
    if (strlen(text) < sizeof reply->text) strcpy(reply->text, text);
}

static void open_packets(int fd, const gw_peer_request *request, gw_datagrams *d, gw_peer_reply *reply) {
    int port = 0;
    gw_datagrams_close(d);
    if (gw_datagrams_open(d, fd, request->cookie, &port) &&
        !gw_datagrams_connect(d, fd, (int)(le32toh(request->argument) & 0xffff)))
        port = 0;
    reply->number[0] = htole64((uint64_t)port);
}

/* False: the connection is finished. */
static bool answer(int fd, const gw_peer_request *request, gw_datagrams *d) {
    gw_peer_reply reply = {0};
    uint32_t size = le32toh(request->argument);
    bool sized = d->fd >= 0 && size >= GW_PACKET_MIN && size <= GW_PACKET_MAX;
    switch (le32toh(request->kind)) {
    case GW_PEER_PING: tell_clock(&reply); break;
    case GW_PEER_WHO: tell_who(fd, &reply); break;
    case GW_PEER_PACKETS: open_packets(fd, request, d, &reply); break;
    case GW_PEER_ARRIVED:
        reply.number[0] = htole64(sized && gw_datagrams_arrived(d, (int)size, gw_clock_now() + GW_PACKET_WAIT));
        break;
    case GW_PEER_SEND:
        if (sized) gw_datagrams_send(d, (int)size);
        break;
    case GW_PEER_TAKE: take(fd, &reply); break;
    case GW_PEER_GIVE: give(fd); return false;
    default: return false;
    }
    return gw_socket_send(fd, &reply, sizeof reply, gw_clock_now() + GW_PEER_WAIT);
}

void gw_peer_serve(int fd) {
    gw_peer_request request;
    gw_datagrams d = {.fd = -1};
    while (gw_socket_receive(fd, &request, sizeof request, gw_clock_now() + IDLE) && answer(fd, &request, &d)) continue;
    gw_datagrams_close(&d);
    close(fd);
}
