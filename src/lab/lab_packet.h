/* lab_packet.h - packets as a TUN device with offloads gives and takes them: a virtio header, then an IPv4 packet. A
 * TCP packet may be a super-packet of up to 64 KiB that stands for many segments, and its checksum may be left to do.
 * These functions cut segments out of it, and alter one. */
#ifndef GW_LAB_LAB_PACKET_H
#define GW_LAB_LAB_PACKET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <linux/virtio_net.h>

#define GW_LAB_PACKET_MAX (sizeof(struct virtio_net_hdr) + 65536)

typedef struct gw_lab_packet {
    const uint8_t *bytes; /* the virtio header and the packet; the caller's */
    size_t length;        /* of both */
    uint32_t destination; /* IPv4, in the byte order of this machine */
    size_t ip, headers;   /* bytes of the IP header; of all headers before the payload, the virtio header left out */
    size_t payload;
    size_t segment; /* payload bytes of each segment, the last may have fewer */
    size_t segments;
    int protocol; /* IPPROTO_TCP, IPPROTO_UDP or another; 0: a fragment, of which nothing more is known */
} gw_lab_packet;

/* Reads the headers; false: no sound IPv4 packet. */
bool gw_lab_packet_read(gw_lab_packet *packet, const uint8_t *bytes, size_t length);
/* The bytes of these segments as a packet of their own. */
size_t gw_lab_packet_bytes(const gw_lab_packet *packet, size_t first, size_t count);
/* Writes them to `out`, which has gw_lab_packet_bytes() of room. */
void gw_lab_packet_cut(const gw_lab_packet *packet, size_t first, size_t count, uint8_t *out);
/* Flips one bit of the payload of a packet of a single segment, for which TCP's and UDP's checksum is then right or
 * wrong. False: it has no payload, and is left as it is. */
bool gw_lab_packet_corrupt(uint8_t *bytes, size_t length, uint32_t bit, bool sums_right);

#endif
