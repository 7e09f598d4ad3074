/* doctor_measure.c - the client end of a measurement. See probe_peer.h. */
#include <endian.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "doctor/probe_peer.h"

enum { PINGS_MAX = 300, PINGS_COLD = 10, PACKET_SMALL = 548 };

#define PING_BUDGET (100 * GW_MILLISECOND)

static bool ask(int fd, gw_peer_kind kind, uint32_t argument, const uint8_t *cookie, gw_peer_reply *reply) {
    gw_peer_request request = {.kind = htole32(kind), .argument = htole32(argument)};
    gw_time deadline = gw_clock_now() + GW_PEER_WAIT;
    if (cookie) memcpy(request.cookie, cookie, sizeof request.cookie);
    if (!gw_socket_send(fd, &request, sizeof request, deadline)) return false;
    if (!reply) return true;
    if (!gw_socket_receive(fd, reply, sizeof *reply, deadline)) return false;
    reply->text[sizeof reply->text - 1] = 0;
    return true;
}

/* ---- latency and clocks ---- */

static int ascending(const void *a, const void *b) {
    gw_time x = *(const gw_time *)a, y = *(const gw_time *)b;
    return (x > y) - (x < y);
}

/* How far the peer's clock is ahead: its time minus our time in the middle of the shortest round trip. */
static double clock_ahead(uint64_t theirs, gw_time round_trip) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    int64_t middle = (int64_t)now.tv_sec * (int64_t)GW_SECOND + now.tv_nsec - (int64_t)(round_trip / 2);
    return (double)((int64_t)theirs - middle) * 1e-9;
}

static bool measure_latency(int fd, gw_peer_figures *figures) {
    gw_time trips[PINGS_MAX], best = UINT64_MAX, start = gw_clock_now();
    int count = 0;
    for (int i = 0; i < PINGS_MAX + PINGS_COLD; i++) {
        gw_peer_reply reply;
        gw_time before = gw_clock_now();
        if (!ask(fd, GW_PEER_PING, 0, NULL, &reply)) return false;
        gw_time trip = gw_clock_now() - before;
        if (trip < best) {
            best = trip;
            figures->skew = clock_ahead(le64toh(reply.number[0]), trip);
        }
        if (i >= PINGS_COLD) trips[count++] = trip;
        if (count && gw_clock_now() - start > PING_BUDGET) break;
    }
    qsort(trips, (size_t)count, sizeof trips[0], ascending);
    figures->latency = (double)trips[count / 2] * 0.5e-9;
    figures->latency_best = (double)best * 0.5e-9;
    return true;
}

/* ---- bandwidth ---- */

static double rate(uint64_t bytes, uint64_t nanoseconds) {
    return nanoseconds ? (double)bytes * 1e9 / (double)nanoseconds : 0;
}

/* Sends until the other side has measured enough and replies. */
static bool measure_out(int fd, char *buffer, gw_peer_figures *figures) {
    gw_peer_reply reply;
    gw_time deadline = gw_clock_now() + GW_PEER_WAIT;
    if (!ask(fd, GW_PEER_TAKE, 0, NULL, NULL)) return false;
    for (;;) {
        struct pollfd wanted = {.fd = fd, .events = POLLIN | POLLOUT};
        gw_time now = gw_clock_now();
        if (now >= deadline) return true; /* out stays 0: stalled */
        if (poll(&wanted, 1, (int)((deadline - now) / GW_MILLISECOND + 1)) <= 0) continue;
        if (wanted.revents & ~POLLOUT) break;
        ssize_t sent = send(fd, buffer, GW_FLOW_BYTES, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && errno != EAGAIN && errno != EINTR) break;
    }
    if (!gw_socket_receive(fd, &reply, sizeof reply, deadline)) return true;
    figures->out = rate(le64toh(reply.number[0]), le64toh(reply.number[1]));
    return true;
}

static bool measure_in(int fd, char *buffer, gw_peer_figures *figures) {
    uint64_t bytes, nanoseconds;
    if (!ask(fd, GW_PEER_GIVE, 0, NULL, NULL)) return false;
    if (gw_flow_count(fd, buffer, &bytes, &nanoseconds)) figures->in = rate(bytes, nanoseconds);
    return true;
}

/* ---- packet sizes ---- */

typedef enum passage { VANISHES, PASSES, SILENCE } passage; /* SILENCE: the connection broke */

static passage try_size(int fd, gw_datagrams *d, int size, bool inward) {
    gw_peer_reply reply;
    if (!inward) gw_datagrams_send(d, size);
    if (!ask(fd, inward ? GW_PEER_SEND : GW_PEER_ARRIVED, (uint32_t)size, NULL, &reply)) return SILENCE;
    bool arrived = inward ? gw_datagrams_arrived(d, size, gw_clock_now() + GW_PACKET_WAIT) : reply.number[0] != 0;
    return arrived ? PASSES : VANISHES;
}

/* If not even small packets pass, UDP is blocked, and the path MTU stays unknown (0). */
static int largest_passing(int fd, gw_datagrams *d, int mtu, bool inward) {
    int low = mtu < PACKET_SMALL ? mtu : PACKET_SMALL, high = mtu;
    passage result = try_size(fd, d, mtu, inward);
    if (result == PASSES) return mtu;
    if (result == SILENCE || try_size(fd, d, low, inward) != PASSES) return 0;
    while (high - low > 1) {
        int middle = low + (high - low) / 2;
        result = try_size(fd, d, middle, inward);
        if (result == SILENCE) return 0;
        if (result == PASSES) low = middle;
        else high = middle;
    }
    return low;
}

static void measure_packets(int fd, int mtu, gw_peer_figures *figures) {
    uint8_t cookie[GW_COOKIE_BYTES];
    gw_datagrams d = {.fd = -1};
    gw_peer_reply reply;
    int port, largest = mtu < GW_PACKET_MAX ? mtu : GW_PACKET_MAX; /* loopback's MTU exceeds the largest packet */
    if (mtu < GW_PACKET_MIN || getrandom(cookie, sizeof cookie, 0) != sizeof cookie) return;
    if (gw_datagrams_open(&d, fd, cookie, &port) && ask(fd, GW_PEER_PACKETS, (uint32_t)port, cookie, &reply) &&
        reply.number[0] && gw_datagrams_connect(&d, fd, (int)(le64toh(reply.number[0]) & 0xffff))) {
        int out = largest_passing(fd, &d, largest, false), in = largest_passing(fd, &d, largest, true);
        figures->mtu_out = out == largest ? mtu : out;
        figures->mtu_in = in == largest ? mtu : in;
    }
    gw_datagrams_close(&d);
}

/* ---- the whole measurement ---- */

static void name_ends(int fd, gw_peer_figures *figures) {
    gw_address own, peer;
    char text[GW_ADDRESS_TEXT];
    gw_peer_reply reply;
    if (gw_socket_own(fd, &own) && strlen(gw_address_host_text(&own, text)) < sizeof figures->local)
        strcpy(figures->local, text);
    if (gw_socket_peer(fd, &peer) && strlen(gw_address_host_text(&peer, text)) < sizeof figures->remote)
        strcpy(figures->remote, text);
    if (ask(fd, GW_PEER_WHO, 0, NULL, &reply)) strcpy(figures->seen, reply.text);
}

bool gw_peer_measure(const int fds[GW_PEER_STREAMS], int mtu, gw_peer_figures *figures) {
    char *buffer = calloc(1, GW_FLOW_BYTES);
    *figures = (gw_peer_figures){0};
    name_ends(fds[GW_PEER_TALK], figures);
    bool good = buffer && measure_latency(fds[GW_PEER_TALK], figures);
    if (good) measure_packets(fds[GW_PEER_TALK], mtu, figures);
    good = good && measure_out(fds[GW_PEER_SINK], buffer, figures) && measure_in(fds[GW_PEER_SOURCE], buffer, figures);
    free(buffer);
    return good;
}
