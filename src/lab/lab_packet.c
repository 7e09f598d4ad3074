/* lab_packet.c - see lab_packet.h. RFC 791, 9293 and 1071; the virtio header as in Linux's tun.c. */
#include "lab/lab_packet.h"

#include <netinet/in.h>
#include <string.h>

#define VIRTIO (sizeof(struct virtio_net_hdr))

enum { IP_BYTES = 20, TCP_BYTES = 20, UDP_BYTES = 8, CHECKSUM_AT_TCP = 16, CHECKSUM_AT_UDP = 6 };
enum { TCP_FLAGS = 13, FIN = 0x01, PSH = 0x08, CWR = 0x80 };

static uint16_t get16(const uint8_t *at) { return (uint16_t)(at[0] << 8 | at[1]); }
static uint32_t get32(const uint8_t *at) { return (uint32_t)get16(at) << 16 | get16(at + 2); }

static void put16(uint8_t *at, uint16_t value) {
    at[0] = (uint8_t)(value >> 8);
    at[1] = (uint8_t)value;
}

static void put32(uint8_t *at, uint32_t value) {
    put16(at, (uint16_t)(value >> 16));
    put16(at + 2, (uint16_t)value);
}

/* Adds big-endian words to a sum that is folded at the end. */
static uint64_t add(uint64_t sum, const uint8_t *bytes, size_t length) {
    for (; length >= 2; bytes += 2, length -= 2) sum += get16(bytes);
    return length ? sum + ((uint64_t)bytes[0] << 8) : sum;
}

static uint16_t fold(uint64_t sum) {
    while (sum >> 16) sum = (sum & 0xffff) + (sum >> 16);
    return (uint16_t)sum;
}

/* Addresses, protocol and length: what TCP's and UDP's checksum covers of the IP header. */
static uint64_t pseudo_header(const uint8_t *ip, size_t length) { return add(0, ip + 12, 8) + ip[9] + length; }

/* Bytes of TCP's or UDP's header, 0 for others; more than there are if it is cut off. */
static size_t transport_header(int protocol, const uint8_t *at, size_t there) {
    if (protocol == IPPROTO_UDP) return UDP_BYTES;
    if (protocol != IPPROTO_TCP) return 0;
    size_t length = there < TCP_BYTES ? 0 : (size_t)(at[12] >> 4) * 4;
    return length < TCP_BYTES ? SIZE_MAX / 2 : length;
}

bool gw_lab_packet_read(gw_lab_packet *packet, const uint8_t *bytes, size_t length) {
    struct virtio_net_hdr virtio;
    if (length < VIRTIO + IP_BYTES) return false;
    memcpy(&virtio, bytes, sizeof virtio);
    const uint8_t *ip = bytes + VIRTIO;
    size_t header = (size_t)(ip[0] & 15) * 4, whole = get16(ip + 2);
    if (ip[0] >> 4 != 4 || header < IP_BYTES || whole < header || whole > length - VIRTIO) return false;
    bool fragment = (get16(ip + 6) & 0x3fff) != 0;
    *packet = (gw_lab_packet){.bytes = bytes, .length = VIRTIO + whole, .destination = get32(ip + 16), .ip = header,
                              .protocol = fragment ? 0 : ip[9]};
    packet->headers = header + transport_header(packet->protocol, ip + header, whole - header);
    if (packet->headers > whole) return false;
    packet->payload = whole - packet->headers;
    bool super = (virtio.gso_type & ~VIRTIO_NET_HDR_GSO_ECN) == VIRTIO_NET_HDR_GSO_TCPV4 && virtio.gso_size;
    packet->segment = super && packet->protocol == IPPROTO_TCP ? virtio.gso_size : packet->payload;
    packet->segments = packet->segment ? (packet->payload + packet->segment - 1) / packet->segment : 1;
    return true;
}

/* Payload bytes of the first segments. */
static size_t payload_before(const gw_lab_packet *packet, size_t segments) {
    return segments >= packet->segments ? packet->payload : segments * packet->segment;
}

size_t gw_lab_packet_bytes(const gw_lab_packet *packet, size_t first, size_t count) {
    return VIRTIO + packet->headers + payload_before(packet, first + count) - payload_before(packet, first);
}

/* A super-packet's checksum is left to do: its field holds the sum of the pseudo header. */
static void adjust_tcp(const gw_lab_packet *packet, size_t first, size_t count, uint8_t *ip, size_t length) {
    uint8_t *tcp = ip + packet->ip;
    put32(tcp + 4, get32(tcp + 4) + (uint32_t)payload_before(packet, first));
    if (first + count < packet->segments) tcp[TCP_FLAGS] &= (uint8_t) ~(FIN | PSH);
    if (first > 0) tcp[TCP_FLAGS] &= (uint8_t)~CWR;
    put16(tcp + CHECKSUM_AT_TCP, fold(pseudo_header(ip, length - packet->ip)));
}

void gw_lab_packet_cut(const gw_lab_packet *packet, size_t first, size_t count, uint8_t *out) {
    if (count == packet->segments) {
        memcpy(out, packet->bytes, packet->length);
        return;
    }
    struct virtio_net_hdr virtio;
    uint8_t *ip = out + VIRTIO;
    size_t length = gw_lab_packet_bytes(packet, first, count) - VIRTIO;
    size_t from = VIRTIO + packet->headers + payload_before(packet, first);
    memcpy(out, packet->bytes, VIRTIO + packet->headers);
    memcpy(ip + packet->headers, packet->bytes + from, length - packet->headers);
    if (count == 1) {
        memcpy(&virtio, out, sizeof virtio);
        virtio.gso_type = VIRTIO_NET_HDR_GSO_NONE;
        virtio.gso_size = 0;
        memcpy(out, &virtio, sizeof virtio);
    }
    put16(ip + 2, (uint16_t)length);
    put16(ip + 4, (uint16_t)(get16(ip + 4) + first));
    put16(ip + 10, 0);
    put16(ip + 10, (uint16_t)~fold(add(0, ip, packet->ip)));
    adjust_tcp(packet, first, count, ip, length);
}

/* Computes the checksum, which then is not left to do any more. */
static void finish_sum(const gw_lab_packet *packet, uint8_t *bytes) {
    uint8_t *ip = bytes + VIRTIO, *transport = ip + packet->ip;
    size_t length = packet->length - VIRTIO - packet->ip;
    if (packet->protocol != IPPROTO_TCP && packet->protocol != IPPROTO_UDP) return;
    uint8_t *field = transport + (packet->protocol == IPPROTO_TCP ? CHECKSUM_AT_TCP : CHECKSUM_AT_UDP);
    struct virtio_net_hdr virtio;
    memcpy(&virtio, bytes, sizeof virtio);
    virtio.flags &= (uint8_t)~VIRTIO_NET_HDR_F_NEEDS_CSUM;
    memcpy(bytes, &virtio, sizeof virtio);
    put16(field, 0);
    uint16_t sum = (uint16_t)~fold(add(pseudo_header(ip, length), transport, length));
    put16(field, packet->protocol == IPPROTO_UDP && sum == 0 ? 0xffff : sum);
}

bool gw_lab_packet_corrupt(uint8_t *bytes, size_t length, uint32_t bit, bool sums_right) {
    gw_lab_packet packet;
    if (!gw_lab_packet_read(&packet, bytes, length) || packet.payload == 0 || packet.segments != 1) return false;
    size_t at = bit % (packet.payload * 8);
    if (!sums_right) finish_sum(&packet, bytes);
    bytes[VIRTIO + packet.headers + at / 8] ^= (uint8_t)(1 << at % 8);
    if (sums_right) finish_sum(&packet, bytes);
    return true;
}
