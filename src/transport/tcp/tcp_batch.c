/* tcp_batch.c - see tcp_batch.h. */
#include "transport/tcp/tcp_batch.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#define SLOTS 16 /* in one batch */
#define PARTS 3  /* of a slot: header with its tag, record, tag of the record */

struct gw_tcp_batch {
    struct iovec parts[PARTS * SLOTS]; /* those from `next` on are unsent */
    int next, count;
    size_t unsent; /* bytes */
    size_t room;   /* payload bytes that it still takes */
    uint8_t headers[SLOTS][GW_FRAME_BYTES + GW_TCP_TAG_MAX];
    uint8_t tags[SLOTS][GW_TCP_TAG_MAX];
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

/* A slot is a header, a record of a payload, or both. */
bool gw_tcp_batch_fill(gw_tcp_batch *batch, gw_tcp_guard *guard, gw_packet *packet, size_t room) {
    batch->next = batch->count = 0;
    batch->room = guard->encrypts ? GW_TCP_RECORD_BYTES : room;
    for (int slot = 0; packet && slot < SLOTS; slot++) {
        uint64_t done = packet->progress ? packet->progress - GW_FRAME_BYTES : 0;
        uint64_t left = packet->frame.length - done;
        size_t bytes = left < GW_TCP_RECORD_BYTES ? (size_t)left : GW_TCP_RECORD_BYTES;
        if (bytes > batch->room) break;
        if (!packet->progress && !add_header(batch, guard, packet, batch->headers[slot])) return false;
        if (bytes && !add_payload(batch, guard, packet, bytes, batch->tags[slot])) return false;
        if (bytes == left) packet = packet->next;
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
