/* test_lab.c - the pure parts of the lab's network: its description, what happens to packets, packets that are cut and
 * altered, and the links on a virtual clock. Real packets: tests/lab.sh. */
#include "test.h"

#include <math.h>
#include <netinet/in.h>

#include "base/rng.h"
#include "lab/crossing.h"
#include "lab/lab_options.h"
#include "lab/lab_packet.h"

#define VIRTIO (sizeof(struct virtio_net_hdr))

/* ---- the description ---- */

static void descriptions_are_read(void) {
    gw_lab_options o;
    CHECK_EQ(GW_OK, gw_lab_parse("hosts=3", &o, NULL));
    CHECK(o.hosts == 3 && o.rate == 1e9 && !gw_impairment_any(&o.network));
    CHECK_EQ(GW_OK, gw_lab_parse("hosts=4,rate=100mbit,delay=50ms,jitter=5ms,loss=1%,reorder=2%,duplicate=0.1%,"
                                 "corrupt=0.5%,sums=right,seed=7",
                                 &o, NULL));
    CHECK(o.hosts == 4 && o.rate == 1e8 && gw_impairment_any(&o.network));
    CHECK(o.network.delay == 50 * GW_MILLISECOND && o.network.jitter == 5 * GW_MILLISECOND);
    CHECK(fabs(o.network.loss - 0.01) < 1e-12 && fabs(o.network.reorder - 0.02) < 1e-12);
    CHECK(fabs(o.network.duplicate - 0.001) < 1e-12 && fabs(o.network.corrupt - 0.005) < 1e-12);
    CHECK(o.network.sums_right && o.network.seed == 7);
}

static void refused(const char *text, const char *expected) {
    gw_lab_options o;
    gw_error error = {0};
    CHECK_EQ(GW_INVALID, gw_lab_parse(text, &o, &error));
    if (!strstr(error.text, expected)) test_failures++, printf("    \"%s\": %s\n", text, error.text);
}

static void bad_descriptions_are_refused(void) {
    refused("speed=3", "described as hosts=4,rate=1gbit,delay=50ms,");
    refused("hosts", "not \"hosts\"");
    refused("", "not \"\"");
    refused("hosts=65", "from 1 to 64, not \"65\"");
    refused("loss=1", "a share of the packets such as 1%, not \"1\"");
    refused("loss=101%", "not \"101%\"");
    refused("loss=-1%", "not \"-1%\"");
    refused("delay=50", "at most 10 s");
    refused("delay=1ms,jitter=2ms", "cannot be larger than its delay");
    refused("corrupt=1%,sums=maybe", "wrong (TCP drops a corrupt packet) or right");
    refused("seed=x", "a whole number");
}

/* ---- what happens to packets ---- */

enum { DRAWS = 200000 };

static bool near(double expected, int count) {
    return fabs((double)count / DRAWS - expected) < 5 * sqrt(expected * (1 - expected) / DRAWS);
}

static void shares_are_as_asked(void) {
    gw_impairment im = {.loss = 0.05, .reorder = 0.02, .duplicate = 0.01, .corrupt = 0.001, .seed = 3};
    int lost = 0, late = 0, twice = 0, corrupt = 0, both = 0;
    for (int i = 0; i < DRAWS; i++) {
        gw_fate fate = gw_impairment_fate(&im, 0, 1, (uint64_t)i);
        lost += fate.lost, late += fate.late > 0, twice += fate.duplicate, corrupt += fate.corrupt;
        both += fate.lost && fate.late;
        if (fate.late) CHECK(fate.late >= GW_LATE_MIN && fate.late <= GW_LATE_MAX);
    }
    CHECK(near(0.05, lost) && near(0.02, late) && near(0.01, twice) && near(0.001, corrupt));
    CHECK(near(0.05 * 0.02, both));
}

static int agreement(const gw_impairment *a, const gw_impairment *b, int to) {
    int same = 0;
    for (uint64_t i = 0; i < 1000; i++)
        same += gw_impairment_fate(a, 0, 1, i).lost == gw_impairment_fate(b, 0, to, i).lost;
    return same;
}

static void seeds_repeat_and_links_differ(void) {
    gw_impairment im = {.loss = 0.5, .seed = 3}, other = {.loss = 0.5, .seed = 4};
    CHECK_EQ(1000, agreement(&im, &im, 1));
    CHECK(agreement(&im, &other, 1) < 600);
    CHECK(agreement(&im, &im, 2) < 600);
}

static void jitter_keeps_the_order(void) {
    gw_impairment im = {.delay = 20 * GW_MILLISECOND, .jitter = 5 * GW_MILLISECOND, .seed = 9};
    gw_time last = 0, least = UINT64_MAX, most = 0;
    for (gw_time now = 0; now < 10 * GW_SECOND; now += GW_MILLISECOND / 10) {
        gw_time delay = gw_impairment_delay(&im, 0, 1, now);
        CHECK(now + delay >= last);
        last = now + delay;
        if (delay < least) least = delay;
        if (delay > most) most = delay;
    }
    CHECK(least >= 15 * GW_MILLISECOND && least < 16 * GW_MILLISECOND);
    CHECK(most <= 25 * GW_MILLISECOND && most > 24 * GW_MILLISECOND);
}

/* ---- packets ---- */

enum { HEADERS = 20 + 32, MSS = 1000, PAYLOAD = 4500, WHOLE = HEADERS + PAYLOAD };

static uint64_t words(const uint8_t *at, size_t length) {
    uint64_t sum = 0;
    for (size_t i = 0; i < length; i++) sum += i % 2 ? at[i] : (uint64_t)at[i] << 8;
    return sum;
}

static unsigned fold(uint64_t sum) {
    while (sum >> 16) sum = (sum & 0xffff) + (sum >> 16);
    return (unsigned)sum;
}

/* What a receiver computes; 0xffff: right. */
static unsigned ip_sum(const uint8_t *ip) { return fold(words(ip, 20)); }
static unsigned tcp_sum(const uint8_t *ip, size_t length) {
    return fold(words(ip + 12, 8) + IPPROTO_TCP + (length - 20) + words(ip + 20, length - 20));
}

/* A super-packet of five segments from 10.77.0.1 to 10.77.0.2, as the kernel hands it over. */
static void make_super(uint8_t bytes[VIRTIO + WHOLE]) {
    struct virtio_net_hdr virtio = {.flags = VIRTIO_NET_HDR_F_NEEDS_CSUM, .gso_type = VIRTIO_NET_HDR_GSO_TCPV4,
                                    .hdr_len = HEADERS, .gso_size = MSS, .csum_start = 20, .csum_offset = 16};
    static const uint8_t header[HEADERS] = {0x45, 0,  WHOLE >> 8, WHOLE & 255, 0x12, 0x34, 0x40, 0, 64, 6, 0,
                                            0,    10, 77,         0,           1,    10,   77,   0, 2,  4, 0,
                                            5,    0,  0xff,       0xff,        0xff, 0xff, 0,    0, 0,  9, 0x80,
                                            0x99, 1,  0,          0,           0,    0,    0}; /* 0x99: CWR, ACK, PSH,
                                                                                                  FIN */
    memcpy(bytes, &virtio, sizeof virtio);
    memcpy(bytes + VIRTIO, header, sizeof header);
    for (int i = 0; i < PAYLOAD; i++) bytes[VIRTIO + HEADERS + i] = (uint8_t)(i * 7 + i / 256);
}

static uint32_t sequence(const uint8_t *ip) {
    return (uint32_t)ip[24] << 24 | (uint32_t)ip[25] << 16 | (uint32_t)ip[26] << 8 | ip[27];
}

static void segments_are_cut(void) {
    uint8_t bytes[VIRTIO + WHOLE], out[VIRTIO + WHOLE];
    gw_lab_packet packet;
    struct virtio_net_hdr virtio;
    make_super(bytes);
    CHECK(gw_lab_packet_read(&packet, bytes, sizeof bytes));
    CHECK(packet.segments == 5 && packet.destination == 0x0a4d0002 && packet.payload == PAYLOAD);
    static const int runs[][2] = {{0, 1}, {1, 3}, {4, 1}, {0, 5}};
    for (int i = 0; i < 4; i++) {
        size_t first = (size_t)runs[i][0], count = (size_t)runs[i][1], length;
        size_t payload = first + count == 5 ? PAYLOAD - first * MSS : count * MSS;
        length = gw_lab_packet_bytes(&packet, first, count) - VIRTIO;
        CHECK_EQ(HEADERS + payload, length);
        gw_lab_packet_cut(&packet, first, count, out);
        const uint8_t *ip = out + VIRTIO;
        memcpy(&virtio, out, sizeof virtio);
        CHECK_EQ(length, ip[2] << 8 | ip[3]);
        CHECK_EQ((uint32_t)(0xffffffffu + first * MSS), sequence(ip));
        CHECK_EQ(first == 0, (ip[33] & 0x80) != 0);
        CHECK_EQ(first + count == 5 ? 0x09 : 0, ip[33] & 0x09);
        CHECK_EQ(count > 1, virtio.gso_type == VIRTIO_NET_HDR_GSO_TCPV4);
        CHECK(memcmp(ip + HEADERS, bytes + VIRTIO + HEADERS + first * MSS, payload) == 0);
        if (count < 5) CHECK_EQ(0xffff, ip_sum(ip));
        if (count < 5) CHECK_EQ(fold(words(ip + 12, 8) + IPPROTO_TCP + length - 20), ip[36] << 8 | ip[37]);
    }
}

static void corruption_flips_one_bit(void) {
    uint8_t bytes[VIRTIO + WHOLE], cut[VIRTIO + WHOLE], out[VIRTIO + WHOLE];
    gw_lab_packet packet;
    struct virtio_net_hdr virtio;
    make_super(bytes);
    CHECK(gw_lab_packet_read(&packet, bytes, sizeof bytes));
    size_t length = gw_lab_packet_bytes(&packet, 2, 1);
    gw_lab_packet_cut(&packet, 2, 1, cut);
    for (int right = 0; right < 2; right++) {
        int changed = 0;
        memcpy(out, cut, length);
        CHECK(gw_lab_packet_corrupt(out, length, 123456789, right));
        for (size_t i = VIRTIO + HEADERS; i < length; i++) changed += __builtin_popcount(out[i] ^ cut[i]);
        CHECK_EQ(1, changed);
        memcpy(&virtio, out, sizeof virtio);
        CHECK_EQ(0, virtio.flags & VIRTIO_NET_HDR_F_NEEDS_CSUM);
        CHECK_EQ(right, tcp_sum(out + VIRTIO, length - VIRTIO) == 0xffff);
    }
    CHECK(!gw_lab_packet_corrupt(bytes, sizeof bytes, 1, true)); /* several segments */
}

/* Whatever a host sends, the forwarder reads and writes within its buffers (the sanitizers see it). */
static void any_bytes_are_read(void) {
    gw_rng rng = gw_rng_make(11, 0);
    for (int i = 0; i < 20000; i++) {
        uint8_t super[VIRTIO + WHOLE];
        gw_lab_packet packet;
        make_super(super);
        size_t length = gw_rng_below(&rng, sizeof super + 1);
        uint8_t *bytes = malloc(length + 1);
        memcpy(bytes, super, length);
        for (int k = 0; k < 3 && length; k++)
            bytes[gw_rng_below(&rng, length < 80 ? length : 80)] = (uint8_t)gw_rng_u32(&rng);
        if (gw_lab_packet_read(&packet, bytes, length) && packet.segments > 0) {
            size_t first = gw_rng_below(&rng, packet.segments), count = 1 + gw_rng_below(&rng, packet.segments - first);
            uint8_t *out = malloc(gw_lab_packet_bytes(&packet, first, count));
            gw_lab_packet_cut(&packet, first, count, out);
            gw_lab_packet_corrupt(out, gw_lab_packet_bytes(&packet, first, count), gw_rng_u32(&rng), i % 2);
            free(out);
        }
        free(bytes);
    }
}

/* ---- links ---- */

static void send_at(gw_crossing *c, int from, int to, size_t bytes, gw_time arrival, uint32_t mark) {
    uint8_t *room = gw_crossing_room(c, from, bytes);
    CHECK(room != NULL);
    if (!room) return;
    memset(room, (int)mark, bytes);
    memcpy(room, &mark, sizeof mark);
    gw_crossing_send(c, from, to, bytes, bytes, arrival);
}

static uint32_t mark_of(const gw_crossed *packet) {
    uint32_t mark;
    memcpy(&mark, packet->bytes, sizeof mark);
    for (size_t i = sizeof mark; i < packet->length; i++) {
        if (packet->bytes[i] == (uint8_t)mark) continue;
        CHECK(!"the bytes of a packet have changed");
        break;
    }
    return mark;
}

static gw_crossing *crossing(double rate, gw_time delay) {
    gw_crossing *c = NULL;
    CHECK_EQ(GW_OK, gw_crossing_open(&c, 3, rate, delay, NULL));
    return c;
}

static void packets_arrive_in_time_and_order(void) {
    gw_crossing *c = crossing(1e9, GW_SECOND);
    gw_crossed packet;
    send_at(c, 0, 1, 1000, 50, 1);
    send_at(c, 0, 1, 1000, 70, 2);
    send_at(c, 2, 1, 1000, 60, 3); /* overtakes */
    send_at(c, 0, 1, 1000, 70, 4);
    CHECK_EQ(50, gw_crossing_next(c));
    CHECK(!gw_crossing_take(c, 49, &packet));
    static const uint32_t order[] = {1, 3, 2, 4};
    for (int i = 0; i < 4; i++) {
        CHECK(gw_crossing_take(c, 70, &packet));
        CHECK(mark_of(&packet) == order[i] && packet.to == 1 && packet.length == 1000);
    }
    CHECK(!gw_crossing_take(c, UINT64_MAX, &packet));
    CHECK(gw_crossing_next(c) == UINT64_MAX);
    gw_crossing_close(c);
}

/* Twice what the link takes, for a second: it hands out its rate, and the rest is dropped. */
static void links_keep_their_rate(void) {
    double rate = 100e6;
    gw_crossing *c = crossing(rate, 0);
    gw_crossed packet;
    size_t out = 0, first_ms = 0;
    uint32_t last = 0;
    for (uint32_t i = 1; i <= 16667; i++) {
        gw_time now = (gw_time)i * 60000;
        send_at(c, 0, 1, 1500, now, i);
        while (gw_crossing_take(c, now, &packet)) {
            CHECK(mark_of(&packet) > last);
            last = mark_of(&packet);
            out += packet.length;
            if (now <= GW_MILLISECOND) first_ms += packet.length;
        }
    }
    CHECK((double)first_ms <= gw_link_burst(rate));
    CHECK(fabs((double)out - rate / 8 - gw_link_burst(rate)) < 5000);
    size_t waiting = 0;
    while (gw_crossing_take(c, UINT64_MAX, &packet)) waiting += packet.length;
    CHECK((double)waiting <= gw_link_queue(rate) && (double)waiting > gw_link_queue(rate) - 3000);
    gw_crossing_close(c);
}

/* Far more bytes than the memory has, from two senders, at random times and sizes: each packet arrives unharmed. */
static void memory_is_used_again(void) {
    gw_crossing *c = crossing(10e9, 10 * GW_MILLISECOND);
    gw_rng rng = gw_rng_make(5, 0);
    gw_crossed packet;
    uint32_t sent = 0, got = 0;
    for (gw_time now = 0; sent < 20000; now += 50000) {
        send_at(c, (int)gw_rng_below(&rng, 2), 2, 64 + gw_rng_below(&rng, 40000), now + gw_rng_below(&rng, 10000000),
                ++sent);
        while (gw_crossing_take(c, now, &packet)) got += mark_of(&packet) <= sent;
    }
    while (gw_crossing_take(c, UINT64_MAX, &packet)) got++;
    CHECK_EQ(sent, got);
    gw_crossing_close(c);
}

static void full_memory_refuses(void) {
    gw_crossing *c = crossing(1e6, 0);
    gw_crossed packet;
    uint32_t sent = 0;
    for (; gw_crossing_room(c, 0, 60000); sent++) send_at(c, 0, 1, 60000, GW_SECOND + sent, sent);
    CHECK(sent > 100);
    CHECK(gw_crossing_room(c, 1, 60000) != NULL); /* another host has its own */
    while (gw_crossing_take(c, UINT64_MAX, &packet)) mark_of(&packet);
    CHECK(gw_crossing_room(c, 0, 60000) != NULL);
    gw_crossing_close(c);
}

TEST_MAIN(CASE(descriptions_are_read), CASE(bad_descriptions_are_refused), CASE(shares_are_as_asked),
          CASE(seeds_repeat_and_links_differ), CASE(jitter_keeps_the_order), CASE(segments_are_cut),
          CASE(corruption_flips_one_bit), CASE(any_bytes_are_read), CASE(packets_arrive_in_time_and_order),
          CASE(links_keep_their_rate), CASE(memory_is_used_again), CASE(full_memory_refuses))
