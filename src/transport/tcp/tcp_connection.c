/* tcp_connection.c - see tcp_connection.h. */
#include "transport/tcp/tcp_connection.h"

#include "base/fork_descriptors.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#define TURN_BYTES ((size_t)1 << 20)          /* most bytes of one call, so that all peers get their turn */
#define SMALL_BYTES ((uint64_t)16 << 10)      /* payloads up to this are read through the buffer */
#define SMALL_BUFFER_BYTES ((size_t)32 << 10) /* of the buffer, filled with small frames by one read */
#define PART_BYTES ((size_t)128 << 10)        /* of a clear payload that is used in parts, half a chunk */
#define PART_STEP ((size_t)16)                /* alignment of a part's address and length: whole elements of any type */
#define UNSENT_BYTES ((int)512 << 10)         /* in the kernel and not yet sent: urgent packets cannot overtake them */
#define DOZE_BYTES ((uint64_t)512 << 10)      /* of a payload, before a sleeping poller is woken */
#define GATHER 16                             /* iovecs of one sendmsg: half of them headers */

_Static_assert(2 * GW_TCP_TAG_MAX <= GW_FRAME_BYTES, "two tags beside a record and a header");

gw_tcp_conn *gw_tcp_conn_make(int peer, int stream, uint32_t generation, int fd, const gw_tcp_guard *guard) {
    gw_tcp_conn *conn = aligned_alloc(alignof(gw_tcp_conn), sizeof *conn + GW_TCP_BUFFER_BYTES);
    gw_tcp_batch *batch = guard->tag_bytes ? gw_tcp_batch_make(guard) : NULL;
    if (!conn || (guard->tag_bytes && !batch)) {
        free(conn);
        gw_tcp_batch_free(batch);
        return NULL;
    }
    *conn = (gw_tcp_conn){.fd = fd, .peer = peer, .stream = stream, .generation = generation, .guard = *guard};
    conn->batch = batch;
    conn->ahead = SMALL_BUFFER_BYTES;
    /* A cipher is slower than the kernel. A rank that reads after each record that it sends keeps its peer going; after
     * four, the peer has filled the socket and waits (added: 1.1 times what libcrypto takes, not 1.3). */
    conn->turn = guard->send ? GW_TCP_RECORD_BYTES : TURN_BYTES;
    conn->low_water = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &(int){UNSENT_BYTES}, sizeof(int)); /* optional */
    return conn;
}

gw_tcp_conn *gw_tcp_conn_refusal(int peer, uint32_t generation, gw_status status, const char *detail) {
    gw_tcp_conn *conn = aligned_alloc(alignof(gw_tcp_conn), sizeof *conn);
    if (!conn) return NULL;
    *conn = (gw_tcp_conn){.fd = -1, .peer = peer, .generation = generation, .status = status};
    snprintf(conn->detail, sizeof conn->detail, "%s", detail);
    return conn;
}

void gw_tcp_conn_free(gw_tcp_conn *conn) {
    gw_fd_close(conn->fd);
    gw_tcp_guard_close(&conn->guard);
    gw_tcp_batch_free(conn->batch);
    free(conn);
}

/* Ends the connection. If sending failed before, its reason is kept, because it came first. */
static void end(gw_tcp_conn *conn, gw_status status, const char *format, ...) __attribute__((format(printf, 3, 4)));
static void end(gw_tcp_conn *conn, gw_status status, const char *format, ...) {
    conn->status = status;
    if (conn->mute) return;
    va_list args;
    va_start(args, format);
    vsnprintf(conn->detail, sizeof conn->detail, format, args);
    va_end(args);
}

/* Separates errors of this machine from those of the peer or the network. */
static gw_status status_of(int error) {
    return error == EFAULT || error == ENOMEM || error == ENOBUFS ? GW_SYSTEM : GW_PEER_LOST;
}

/* ---- receiving ---- */

static size_t header_bytes(const gw_tcp_conn *conn) { return GW_FRAME_BYTES + conn->guard.tag_bytes; }

/* Of the payload, in the next record. */
static size_t record_bytes(const gw_tcp_conn *conn) {
    return conn->left < GW_TCP_RECORD_BYTES ? (size_t)conn->left : GW_TCP_RECORD_BYTES;
}

/* The header of a message, or a record of its payload. */
static bool verify(gw_tcp_conn *conn, uint8_t *record, size_t bytes, const uint8_t *tag, bool header) {
    if (!conn->guard.tag_bytes || gw_tcp_guard_verify(&conn->guard, record, bytes, tag)) return true;
    const char *sum = conn->guard.receive ? "tag" : "checksum";
    if (header) end(conn, GW_PROTOCOL, "a message was changed on its way: the %s of its header is wrong", sum);
    else
        end(conn, GW_PROTOCOL, "message %llu of operation %llu was changed on its way: its %s is wrong",
            (unsigned long long)conn->frame.index, (unsigned long long)conn->frame.op, sum);
    return false;
}

/* Reads a header and finds the buffer for its payload. False: the connection has failed. */
static bool begin_frame(gw_tcp_conn *conn, const gw_sink *sink, uint8_t *header) {
    gw_error error = {0};
    if (!verify(conn, header, GW_FRAME_BYTES, header + GW_FRAME_BYTES, true)) return false;
    if (gw_frame_read(&conn->frame, header, &error) != GW_OK) {
        end(conn, GW_PROTOCOL, "%s", error.text);
        return false;
    }
    uint64_t length = conn->frame.length;
    bool large = length > SMALL_BYTES, data = conn->frame.kind == GW_FRAME_DATA;
    conn->ahead = large ? header_bytes(conn) : SMALL_BUFFER_BYTES;
    conn->recv_buffer = NULL;
    conn->by_parts = false;
    conn->left = 0;
    if (length == 0) return true;
    conn->by_parts = large && data && sink->part && sink->part(sink->ctx, conn->peer, &conn->frame, 0, NULL, 0);
    if (data && !conn->by_parts) conn->recv_buffer = sink->recv_buffer(sink->ctx, conn->peer, &conn->frame);
    if (!conn->recv_buffer && !conn->by_parts) {
        end(conn, GW_PROTOCOL, "a frame of kind %d brought %llu bytes that have no place here", conn->frame.kind,
            (unsigned long long)length);
        return false;
    }
    conn->left = length;
    return true;
}

/* More of the payload is in place; calls arrived() for the last bytes. */
static void advance(gw_tcp_conn *conn, const gw_sink *sink, size_t bytes) {
    conn->left -= bytes;
    if (conn->left == 0) sink->arrived(sink->ctx, conn->peer, &conn->frame, conn->recv_buffer, 0);
}

/* The next record of the payload, as far as the buffer has it from `at` on; returns the bytes used. */
static size_t use_record(gw_tcp_conn *conn, const gw_sink *sink, size_t at) {
    uint8_t *from = conn->buffer + at, *record = from;
    size_t here = conn->end - at, bytes = record_bytes(conn), more = bytes;
    uint64_t done = conn->frame.length - conn->left;
    if (!conn->by_parts) {
        more = here < bytes - conn->in_place ? here : bytes - conn->in_place;
        record = conn->recv_buffer + done;
        memcpy(record + conn->in_place, from, more);
        conn->in_place += more;
        if (conn->in_place < bytes) return more;
    }
    if (here < more + conn->guard.tag_bytes) return conn->by_parts ? 0 : more;
    if (!verify(conn, record, bytes, from + more, false)) return 0;
    if (conn->by_parts) sink->part(sink->ctx, conn->peer, &conn->frame, done, record, bytes);
    conn->in_place = 0;
    advance(conn, sink, bytes);
    return more + conn->guard.tag_bytes;
}

/* Uses the payload bytes in the buffer from `at` on; returns their number. */
static size_t use_buffered(gw_tcp_conn *conn, const gw_sink *sink, size_t at) {
    if (conn->guard.tag_bytes && conn->left > 0) return use_record(conn, sink, at);
    uint8_t *from = conn->buffer + at;
    size_t here = conn->end - at < conn->left ? conn->end - at : (size_t)conn->left;
    uint64_t done = conn->frame.length - conn->left;
    if (conn->by_parts) {
        if (here < conn->left) here -= here % PART_STEP;
        if (here > 0) sink->part(sink->ctx, conn->peer, &conn->frame, done, from, here);
    } else if (here > 0) {
        memcpy(conn->recv_buffer + done, from, here);
    }
    advance(conn, sink, here);
    return here;
}

/* Drops the bytes before `at`. */
static void move_up(gw_tcp_conn *conn, size_t at) {
    conn->end -= at;
    if (at > 0 && conn->end > 0) memmove(conn->buffer, conn->buffer + at, conn->end);
}

/* Parses the buffer. Afterwards it holds less than a header, less than a part, or less than a record. */
static void parse(gw_tcp_conn *conn, const gw_sink *sink) {
    size_t at = 0;
    while (conn->left > 0 || conn->end - at >= header_bytes(conn)) {
        if (conn->left == 0) {
            if (!begin_frame(conn, sink, conn->buffer + at)) return;
            at += header_bytes(conn);
        }
        if (conn->by_parts && at % PART_STEP) {
            move_up(conn, at);
            at = 0;
        }
        size_t used = use_buffered(conn, sink, at);
        if (conn->status != GW_OK) return;
        at += used;
        if (conn->left > 0 && used == 0) break;
    }
    move_up(conn, at);
}

/* The end of the stream, or an error. False: nothing to read for now. */
static bool read_failed(gw_tcp_conn *conn, ssize_t got, int error) {
    bool inside = conn->left > 0 || conn->end > 0;
    if (got < 0 && (error == EAGAIN || error == EINTR)) return false;
    if (got < 0) end(conn, status_of(error), "%s", strerror(error));
    else if (inside) end(conn, GW_PEER_LOST, "connection closed by the peer in the middle of a message");
    else end(conn, GW_PEER_LOST, "connection closed by the peer");
    conn->orderly = got == 0 && !inside && !conn->mute;
    return true;
}

/* The same with a guard: the rest of one record with its tag, and of the next header if it is the last one. */
static int scatter_record(gw_tcp_conn *conn, struct iovec parts[2]) {
    size_t bytes = record_bytes(conn), after = conn->guard.tag_bytes;
    if (bytes == conn->left) after += conn->ahead;
    if (conn->by_parts) {
        parts[0] = (struct iovec){conn->buffer + conn->end, bytes + after - conn->end};
        return 1;
    }
    parts[0] =
        (struct iovec){conn->recv_buffer + (conn->frame.length - conn->left) + conn->in_place, bytes - conn->in_place};
    parts[1] = (struct iovec){conn->buffer + conn->end, after - conn->end};
    return 2;
}

/* The iovecs for the next bytes: the rest of the payload, then the buffer. */
static int scatter(gw_tcp_conn *conn, struct iovec parts[2]) {
    int count = 0;
    if (conn->guard.tag_bytes && conn->left > 0) return scatter_record(conn, parts);
    if (conn->by_parts && conn->left > 0) {
        bool fits = conn->left <= PART_BYTES;
        size_t whole = (fits ? (size_t)conn->left : PART_BYTES) + GW_FRAME_BYTES;
        parts[0] = (struct iovec){conn->buffer + conn->end, whole - conn->end};
        return 1;
    }
    if (conn->left > 0) {
        uint8_t *at = conn->recv_buffer + (conn->frame.length - conn->left);
        parts[count++] = (struct iovec){at, conn->left < TURN_BYTES ? (size_t)conn->left : TURN_BYTES};
        if (conn->left > TURN_BYTES) return count;
    }
    parts[count++] = (struct iovec){conn->buffer + conn->end, conn->ahead - conn->end};
    return count;
}

bool gw_tcp_conn_read(gw_tcp_conn *conn, const gw_sink *sink) {
    size_t moved = 0;
    while (moved < TURN_BYTES && conn->status == GW_OK) {
        struct iovec parts[2];
        int count = scatter(conn, parts);
        size_t room = parts[0].iov_len + (count > 1 ? parts[1].iov_len : 0);
        ssize_t got = count > 1 ? readv(conn->fd, parts, count) : recv(conn->fd, parts[0].iov_base, room, 0);
        if (got <= 0) return read_failed(conn, got, errno) || moved > 0;
        moved += (size_t)got;
        size_t direct = conn->by_parts || conn->left == 0 ? 0 : parts[0].iov_len;
        size_t payload = (size_t)got < direct ? (size_t)got : direct;
        conn->end += (size_t)got - payload;
        if (conn->guard.tag_bytes) conn->in_place += payload;
        else if (payload > 0) advance(conn, sink, payload);
        parse(conn, sink);
        if ((size_t)got < room) break; /* the socket is empty */
    }
    return moved > 0;
}

/* At 1 Gbit/s a segment comes every half millisecond, and a wake-up costs 10 to 25 us of a core that may be computing.
 * Nothing can be used before the payload is complete, so the kernel wakes the poller only then, or after DOZE_BYTES. */
void gw_tcp_conn_doze(gw_tcp_conn *conn, bool sleeping) {
    uint64_t records = (conn->left + GW_TCP_RECORD_BYTES - 1) / GW_TCP_RECORD_BYTES;
    uint64_t coming = conn->left + records * conn->guard.tag_bytes;
    uint64_t still = coming ? coming - conn->in_place - conn->end : 0; /* buffer has the first bytes of a part or tag */
    uint64_t rest = still < DOZE_BYTES ? still : DOZE_BYTES;
    uint64_t low_water = sleeping && rest > SMALL_BYTES ? rest : 1;
    int value = (int)low_water;
    if (low_water == conn->low_water || conn->fd < 0) return;
    if (setsockopt(conn->fd, SOL_SOCKET, SO_RCVLOWAT, &value, sizeof value) == 0) conn->low_water = low_water;
}

/* ---- sending ---- */

/* The unsent bytes of the first packets of the queue. */
static int gather(const gw_packet *packet, size_t turn, struct iovec parts[GATHER], uint8_t headers[][GW_FRAME_BYTES],
                  size_t *total) {
    int count = 0;
    *total = 0;
    for (int i = 0; packet && count + 2 <= GATHER && *total < turn; i++, packet = packet->next) {
        uint64_t done = packet->progress;
        if (done < GW_FRAME_BYTES) {
            gw_frame_write(&packet->frame, headers[i]);
            parts[count++] = (struct iovec){headers[i] + done, GW_FRAME_BYTES - (size_t)done};
            *total += GW_FRAME_BYTES - (size_t)done;
            done = GW_FRAME_BYTES;
        }
        uint64_t left = packet->frame.length - (done - GW_FRAME_BYTES);
        if (left == 0) continue;
        size_t bytes = left < turn ? (size_t)left : turn;
        parts[count++] = (struct iovec){(uint8_t *)(uintptr_t)packet->data + (done - GW_FRAME_BYTES), bytes};
        *total += bytes; /* a payload that is cut fills the turn, so nothing follows it */
    }
    return count;
}

static uint64_t packet_bytes(const gw_packet *packet) { return GW_FRAME_BYTES + packet->frame.length; }

/* Takes the packets that are sent to their end from the queue. sent() may queue more. */
static void finish_packets(gw_packet_queue *queue, int peer, const gw_sink *sink) {
    while (queue->head && queue->head->progress == packet_bytes(queue->head)) {
        gw_packet *packet = queue->head;
        queue->head = packet->next;
        if (!queue->head) queue->tail = NULL;
        sink->sent(sink->ctx, peer, packet);
    }
}

/* The kernel took this many bytes of the queue. All packets are updated before sent() is called. */
static void consume(gw_packet_queue *queue, int peer, const gw_sink *sink, size_t bytes) {
    for (gw_packet *packet = queue->head; bytes > 0; packet = packet->next) {
        uint64_t left = packet_bytes(packet) - packet->progress;
        size_t taken = bytes < left ? bytes : (size_t)left;
        packet->progress += taken;
        bytes -= taken;
    }
    finish_packets(queue, peer, sink);
}

static gw_tcp_flow write_failed(gw_tcp_conn *conn, int error) {
    if (error == EAGAIN) return GW_TCP_BLOCKED;
    if (error == EINTR) return GW_TCP_MOVED;
    end(conn, status_of(error), "%s", strerror(error));
    if (error == EPIPE || error == ECONNRESET) {
        conn->status = GW_OK; /* first read the bytes that the peer sent before it ended */
        conn->mute = true;
    }
    return GW_TCP_BROKEN;
}

/* The same in batches of records; a packet's progress says how much of it is protected. */
static gw_tcp_flow write_records(gw_tcp_conn *conn, gw_packet_queue *queue, const gw_sink *sink, bool *moved) {
    gw_tcp_batch *batch = conn->batch;
    size_t sum = 0, room = conn->flows && conn->turn > GW_TCP_RECORD_BYTES ? conn->turn : GW_TCP_RECORD_BYTES;
    conn->flows = false;
    while (queue->head && sum < conn->turn) {
        if (conn->mute || conn->status != GW_OK) return GW_TCP_BROKEN;
        if (!gw_tcp_batch_unsent(batch) && !gw_tcp_batch_fill(batch, &conn->guard, queue->head, room)) {
            end(conn, GW_SYSTEM, "libcrypto failed to protect a message to it");
            return GW_TCP_BROKEN;
        }
        ssize_t took = gw_tcp_batch_send(batch, conn->fd);
        if (took < 0) return write_failed(conn, errno);
        *moved = true;
        sum += (size_t)took;
        if (gw_tcp_batch_unsent(batch)) return GW_TCP_BLOCKED;
        finish_packets(queue, conn->peer, sink);
    }
    conn->flows = sum >= conn->turn;
    return GW_TCP_MOVED;
}

gw_tcp_flow gw_tcp_conn_write(gw_tcp_conn *conn, gw_packet_queue *queue, const gw_sink *sink, bool *moved) {
    if (conn->batch) return write_records(conn, queue, sink, moved);
    size_t sum = 0;
    while (queue->head && sum < conn->turn) {
        if (conn->mute || conn->status != GW_OK) return GW_TCP_BROKEN;
        struct iovec parts[GATHER];
        uint8_t headers[GATHER][GW_FRAME_BYTES];
        size_t total;
        struct msghdr message = {.msg_iov = parts};
        message.msg_iovlen = (size_t)gather(queue->head, conn->turn, parts, headers, &total);
        ssize_t took = sendmsg(conn->fd, &message, MSG_NOSIGNAL);
        if (took < 0) return write_failed(conn, errno);
        *moved = true;
        sum += (size_t)took;
        consume(queue, conn->peer, sink, (size_t)took);
        if ((size_t)took < total) return GW_TCP_BLOCKED;
    }
    return GW_TCP_MOVED;
}
