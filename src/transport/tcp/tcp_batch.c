/* tcp_batch.c - see tcp_batch.h. */
#include "transport/tcp/tcp_batch.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#define PACKETS 16 /* in one batch */
#define PARTS 3    /* of a packet: header with its tag, payload, tag of the payload */

struct gw_tcp_batch {
    struct iovec parts[PARTS * PACKETS]; /* those from `next` on are unsent */
    int next, count;
    size_t unsent; /* bytes */
    size_t room;   /* payload bytes that it still takes */
    uint8_t headers[PACKETS][GW_FRAME_BYTES + GW_TCP_TAG_MAX];
    uint8_t tags[PACKETS][GW_TCP_TAG_MAX];
    uint8_t secret[]; /* with tls the ciphertext of the payloads, GW_TCP_RECORD_BYTES */
};

gw_tcp_batch *gw_tcp_batch_make(const gw_tcp_guard *guard) {
    gw_tcp_batch *batch = malloc(sizeof *batch + (guard->encrypts ? GW_TCP_RECORD_BYTES : 0));
    if (batch) batch->next = batch->count = 0, batch->unsent = 0;
    return batch;
}

void gw_tcp_batch_free(gw_tcp_batch *batch) { free(batch); }

size_t gw_tcp_batch_unsent(const gw_tcp_batch *batch) { return batch->unsent; }

static void add(gw_tcp_batch *batch, const void *data, size_t bytes) {
    batch->parts[batch->count++] = (struct iovec){(void *)(uintptr_t)data, bytes};
    batch->unsent += bytes;
}

static bool add_header(gw_tcp_batch *batch, gw_tcp_guard *guard, gw_packet *packet, uint8_t *header) {
    gw_frame_write(&packet->frame, header);
    packet->progress = GW_FRAME_BYTES;
    add(batch, header, GW_FRAME_BYTES + guard->tag_bytes);
    return gw_tcp_guard_protect(guard, header, header, GW_FRAME_BYTES, header + GW_FRAME_BYTES);
}

static bool add_payload(gw_tcp_batch *batch, gw_tcp_guard *guard, gw_packet *packet, size_t bytes, uint8_t *tag) {
    const uint8_t *from = (const uint8_t *)packet->data + (packet->progress - GW_FRAME_BYTES);
    uint8_t *out = guard->encrypts ? batch->secret + (GW_TCP_RECORD_BYTES - batch->room) : NULL;
    packet->progress += bytes;
    batch->room -= bytes;
    add(batch, out ? out : from, bytes);
    add(batch, tag, guard->tag_bytes);
    return gw_tcp_guard_protect(guard, from, out, bytes, tag);
}

bool gw_tcp_batch_fill(gw_tcp_batch *batch, gw_tcp_guard *guard, gw_packet *packets) {
    batch->next = batch->count = 0;
    batch->room = GW_TCP_RECORD_BYTES;
    for (int i = 0; packets && i < PACKETS; i++, packets = packets->next) {
        uint64_t done = packets->progress ? packets->progress - GW_FRAME_BYTES : 0;
        uint64_t left = packets->frame.length - done;
        size_t bytes = left < GW_TCP_RECORD_BYTES ? (size_t)left : GW_TCP_RECORD_BYTES;
        if (bytes > batch->room) break;
        if (!packets->progress && !add_header(batch, guard, packets, batch->headers[i])) return false;
        if (bytes && !add_payload(batch, guard, packets, bytes, batch->tags[i])) return false;
        if (bytes < left) break;
    }
    return true;
}

ssize_t gw_tcp_batch_send(gw_tcp_batch *batch, int fd) {
    struct msghdr message = {.msg_iov = batch->parts + batch->next, .msg_iovlen = (size_t)(batch->count - batch->next)};
    ssize_t took = sendmsg(fd, &message, MSG_NOSIGNAL);
    if (took <= 0) return took;
    size_t rest = (size_t)took;
    batch->unsent -= rest;
    for (; batch->next < batch->count && rest >= batch->parts[batch->next].iov_len; batch->next++)
        rest -= batch->parts[batch->next].iov_len;
    if (rest == 0) return took;
    struct iovec *cut = &batch->parts[batch->next];
    *cut = (struct iovec){(uint8_t *)cut->iov_base + rest, cut->iov_len - rest};
    return took;
}
