/* helper_lab.c - for tests/lab.sh: two ranks on two hosts of a lab. Rank 1 sends numbered datagrams to rank 0, which
 * compares what arrives with what the lab's description says, packet by packet; then a stream, whose rate it measures.
 *
 *     helper_lab packets DESCRIPTION     what happened to each of the datagrams
 *     helper_lab rate DESCRIPTION        the rate of a TCP stream
 *
 * Ranks find each other by what `gradwire run` sets, and send nothing else, so every packet's fate is known beforehand.
 */
#include "test.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "lab/lab_options.h"

enum { PACKETS = 8000, BYTES = 400, STREAM_MS = 1500, TOLERATED = 8 };
#define PERIOD (GW_SECOND / 4000)

typedef struct datagram {
    uint32_t number;
    uint8_t filling[BYTES - 24];
    gw_time sent, again; /* the same, unless it was altered */
} datagram;

typedef struct seen {
    int packets, twice, altered, behind;   /* behind: overtaken by a later one */
    double delay, delay_least, delay_most; /* ms */
} seen;

static gw_lab_options options;
static gw_impairment *network = &options.network;

static struct sockaddr_in rank0_address(void) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(getenv("MASTER_PORT")))};
    inet_pton(AF_INET, getenv("MASTER_ADDR"), &at.sin_addr);
    return at;
}

static void fill(datagram *d, uint32_t number) {
    *d = (datagram){.number = number};
    for (size_t i = 0; i < sizeof d->filling; i++) d->filling[i] = (uint8_t)(number + i);
}

static void pause_until(gw_time when) {
    while (gw_clock_now() < when) usleep(200);
}

/* ---- datagrams ---- */

static void send_packets(void) {
    struct sockaddr_in to = rank0_address();
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    gw_time begin = gw_clock_now() + GW_SECOND; /* the other rank is there by then */
    for (uint32_t i = 0; i < PACKETS; i++) {
        datagram d;
        fill(&d, i);
        pause_until(begin + i * PERIOD);
        d.sent = d.again = gw_clock_now();
        sendto(fd, &d, sizeof d, 0, (struct sockaddr *)&to, sizeof to);
    }
    close(fd);
}

/* A flipped bit may be anywhere, also in the number or the time. */
static void note(const datagram *d, uint8_t counts[PACKETS], uint32_t *last, seen *s) {
    datagram expected;
    if (d->number < PACKETS) fill(&expected, d->number);
    double delay = ((double)gw_clock_now() - (double)d->sent) / 1e6;
    s->packets++;
    if (d->number >= PACKETS || d->sent != d->again || memcmp(d->filling, expected.filling, sizeof d->filling) != 0) {
        s->altered++;
        return;
    }
    s->twice += counts[d->number]++ > 0;
    s->behind += d->number < *last;
    if (d->number > *last) *last = d->number;
    s->delay += delay;
    if (delay < s->delay_least) s->delay_least = delay;
    if (delay > s->delay_most) s->delay_most = delay;
}

static seen receive_packets(void) {
    static uint8_t counts[PACKETS];
    seen s = {.delay_least = INFINITY};
    struct sockaddr_in at = rank0_address();
    uint32_t last = 0;
    int fd = socket(AF_INET, SOCK_DGRAM, 0), room = 32 << 20;
    setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof room);
    CHECK(bind(fd, (struct sockaddr *)&at, sizeof at) == 0);
    struct pollfd waits = {.fd = fd, .events = POLLIN};
    while (poll(&waits, 1, s.packets ? 1500 : 20000) > 0) {
        datagram d;
        if (recv(fd, &d, sizeof d, 0) == sizeof d) note(&d, counts, &last, &s);
    }
    s.delay /= s.packets - s.altered > 0 ? s.packets - s.altered : 1;
    close(fd);
    return s;
}

/* The flow from host 1 to host 0 has no other packets, so these are their numbers. */
static seen foreseen(void) {
    seen s = {0};
    for (uint64_t i = 0; i < PACKETS; i++) {
        gw_fate fate = gw_impairment_fate(network, 1, 0, i);
        if (fate.lost || (fate.corrupt && !network->sums_right)) continue;
        s.packets += 1 + fate.duplicate;
        s.altered += (1 + fate.duplicate) * fate.corrupt;
        s.twice += fate.duplicate && !fate.corrupt;
        s.behind += fate.late && !fate.corrupt ? 1 + fate.duplicate : 0;
    }
    return s;
}

static bool about(int expected, int count) { return abs(count - expected) <= TOLERATED; }

/* A busy machine delays packets, never advances them. Late packets are 1 to 3 ms late, four to twelve periods. */
static void packets_meet_their_fate(void) {
    seen expected = foreseen(), s = receive_packets();
    double delay = (double)network->delay / 1e6, jitter = (double)network->jitter / 1e6;
    printf("    of %d: %d arrived (%d), %d altered (%d), %d twice (%d), %d overtaken (%d); %.2f ms, %.2f to %.2f\n",
           PACKETS, s.packets, expected.packets, s.altered, expected.altered, s.twice, expected.twice, s.behind,
           expected.behind, s.delay, s.delay_least, s.delay_most);
    CHECK(about(expected.packets, s.packets) && about(expected.altered, s.altered) && about(expected.twice, s.twice));
    CHECK(s.behind <= expected.behind + TOLERATED && s.behind >= expected.behind / 2 - TOLERATED);
    CHECK(s.delay_least >= delay - jitter - 0.01 && s.delay_least < delay - jitter + 4);
    CHECK(s.delay >= delay - jitter / 2 - 0.1 && s.delay < delay + jitter / 2 + 20);
}

/* ---- a stream ---- */

static void send_stream(void) {
    static uint8_t bytes[65536];
    struct sockaddr_in to = rank0_address();
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    for (int i = 0; i < 200 && connect(fd, (struct sockaddr *)&to, sizeof to) != 0; i++) {
        usleep(50000);
        close(fd);
        fd = socket(AF_INET, SOCK_STREAM, 0);
    }
    gw_time end = gw_clock_now() + STREAM_MS * GW_MILLISECOND;
    while (gw_clock_now() < end && send(fd, bytes, sizeof bytes, MSG_NOSIGNAL) > 0) {}
    close(fd);
}

/* Bits per second after the first half second. */
static double receive_stream(void) {
    static uint8_t bytes[1 << 20];
    struct sockaddr_in at = rank0_address();
    int listener = socket(AF_INET, SOCK_STREAM, 0), yes = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    CHECK(bind(listener, (struct sockaddr *)&at, sizeof at) == 0 && listen(listener, 1) == 0);
    int fd = accept(listener, NULL, NULL);
    gw_time begin = gw_clock_now() + GW_SECOND / 2, now = begin;
    ssize_t got, sum = 0;
    while ((got = recv(fd, bytes, sizeof bytes, 0)) > 0) {
        now = gw_clock_now();
        if (now > begin) sum += got;
    }
    close(fd);
    close(listener);
    return now > begin ? (double)sum * 8e9 / (double)(now - begin) : 0;
}

/* Headers take 4 %. A busy machine may be slower; no stream is faster than the link. */
static void streams_have_the_rate(void) {
    double rate = receive_stream();
    printf("    %.1f Mbit/s of %.1f\n", rate / 1e6, options.rate / 1e6);
    CHECK(rate < 1.05 * options.rate && rate > 0.5 * options.rate);
}

int main(int argc, char **argv) {
    static const test_case cases[] = {CASE(packets_meet_their_fate), CASE(streams_have_the_rate)};
    gw_error error = {0};
    if (argc != 3 || !getenv("MASTER_ADDR") || gw_lab_parse(argv[2], &options, &error) != GW_OK)
        return fprintf(stderr, "helper_lab packets|rate DESCRIPTION, as two ranks of a job. %s\n", error.text), 2;
    bool rate = strcmp(argv[1], "rate") == 0;
    if (atoi(getenv("RANK")) == 0) return test_main(1, argv, &cases[rate], 1);
    if (rate) send_stream();
    else send_packets();
    return 0;
}
