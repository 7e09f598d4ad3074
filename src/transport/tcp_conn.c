/* tcp_conn.c - see tcp_conn.h. */
#include "transport/tcp_conn.h"

#include "base/descriptor.h"

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

#define TURN_BYTES ((size_t)1 << 20) /* moved by one call at most, so that all peers have their turn */
#define SMALL_BYTES ((uint64_t)16 << 10) /* payloads up to this are read through the buffer */
#define SMALL_BUFFER_BYTES ((size_t)32 << 10) /* of the buffer, to be filled with small frames at once */
#define PIECE_STEP ((size_t)16)          /* a piece has whole elements of any type, and begins at such an address */
#define UNSENT_BYTES ((int)512 << 10)     /* that the kernel holds back: what is urgent cannot overtake them */
#define DOZE_BYTES ((uint64_t)512 << 10)  /* of a payload, before a sleeper is woken */
#define GATHER 16                        /* pieces in one sendmsg: half of them headers */

gw_tcp_conn *gw_tcp_conn_make(int peer, int stream, uint32_t generation, int fd) {
    gw_tcp_conn *conn = aligned_alloc(alignof(gw_tcp_conn), sizeof *conn + GW_TCP_BUFFER_BYTES);
    if (!conn) return NULL;
    *conn = (gw_tcp_conn){.fd = fd, .peer = peer, .stream = stream, .generation = generation};
    conn->ahead = SMALL_BUFFER_BYTES;
    conn->turn = TURN_BYTES;
    conn->low_water = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &(int){UNSENT_BYTES}, sizeof(int)); /* without it all goes on too */
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
    free(conn);
}

/* Ends the connection; a cause that sending found before stays, for it came first. */
static void end(gw_tcp_conn *conn, gw_status status, const char *format, ...) __attribute__((format(printf, 3, 4)));
static void end(gw_tcp_conn *conn, gw_status status, const char *format, ...) {
    conn->status = status;
    if (conn->mute) return;
    va_list args;
    va_start(args, format);
    vsnprintf(conn->detail, sizeof conn->detail, format, args);
    va_end(args);
}

/* Those the peer or the network caused, and those of this machine. */
static gw_status status_of(int error) {
    return error == EFAULT || error == ENOMEM || error == ENOBUFS ? GW_SYSTEM : GW_PEER_LOST;
}

/* ---- receiving ---- */

/* A header is here: finds out where its payload goes. False if the connection ended over it. */
static bool begin_frame(gw_tcp_conn *conn, const gw_sink *sink, const uint8_t *header) {
    gw_error error = {0};
    if (gw_frame_read(&conn->frame, header, &error) != GW_OK) {
        end(conn, GW_PROTOCOL, "%s", error.text);
        return false;
    }
    uint64_t length = conn->frame.length;
    bool large = length > SMALL_BYTES, data = conn->frame.kind == GW_FRAME_DATA;
    conn->ahead = large ? GW_FRAME_BYTES : SMALL_BUFFER_BYTES;
    conn->landing = NULL;
    conn->piecewise = false;
    conn->left = 0;
    if (length == 0) return true;
    conn->piecewise = large && data && sink->piece && sink->piece(sink->ctx, conn->peer, &conn->frame, 0, NULL, 0);
    if (data && !conn->piecewise) conn->landing = sink->landing(sink->ctx, conn->peer, &conn->frame);
    if (!conn->landing && !conn->piecewise) {
        end(conn, GW_PROTOCOL, "a frame of kind %d brought %llu bytes that have no place here", conn->frame.kind,
            (unsigned long long)length);
        return false;
    }
    conn->left = length;
    return true;
}

/* Part of the payload is in place; the whole of it is an arrival. */
static void land(gw_tcp_conn *conn, const gw_sink *sink, size_t bytes) {
    conn->left -= bytes;
    if (conn->left == 0) sink->arrived(sink->ctx, conn->peer, &conn->frame, conn->landing, 0);
}

/* Uses what of the payload is in the buffer from `at` on; tells how much that was. */
static size_t use_buffered(gw_tcp_conn *conn, const gw_sink *sink, size_t at) {
    uint8_t *from = conn->buffer + at;
    size_t here = conn->end - at < conn->left ? conn->end - at : (size_t)conn->left;
    uint64_t done = conn->frame.length - conn->left;
    if (conn->piecewise) {
        if (here < conn->left) here -= here % PIECE_STEP;
        if (here > 0) sink->piece(sink->ctx, conn->peer, &conn->frame, done, from, here);
    } else if (here > 0) {
        memcpy(conn->landing + done, from, here);
    }
    land(conn, sink, here);
    return here;
}

/* Forgets what comes before `at`. */
static void move_up(gw_tcp_conn *conn, size_t at) {
    conn->end -= at;
    if (at > 0 && conn->end > 0) memmove(conn->buffer, conn->buffer + at, conn->end);
}

/* Takes the buffer apart. Afterwards it holds less than a header, or less than a piece can have. */
static void parse(gw_tcp_conn *conn, const gw_sink *sink) {
    size_t at = 0;
    while (conn->left > 0 || conn->end - at >= GW_FRAME_BYTES) {
        if (conn->left == 0) {
            if (!begin_frame(conn, sink, conn->buffer + at)) return;
            at += GW_FRAME_BYTES;
        }
        if (conn->piecewise && at % PIECE_STEP) {
            move_up(conn, at);
            at = 0;
        }
        at += use_buffered(conn, sink, at);
        if (conn->left > 0) break;
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

/* Where the next bytes go: the rest of the payload, then the buffer. */
static int scatter(gw_tcp_conn *conn, struct iovec pieces[2]) {
    int count = 0;
    if (conn->piecewise && conn->left > 0) {
        bool fits = conn->left <= GW_TCP_BUFFER_BYTES - GW_FRAME_BYTES;
        size_t whole = fits ? (size_t)conn->left + GW_FRAME_BYTES : GW_TCP_BUFFER_BYTES;
        pieces[0] = (struct iovec){conn->buffer + conn->end, whole - conn->end};
        return 1;
    }
    if (conn->left > 0) {
        uint8_t *at = conn->landing + (conn->frame.length - conn->left);
        pieces[count++] = (struct iovec){at, conn->left < TURN_BYTES ? (size_t)conn->left : TURN_BYTES};
        if (conn->left > TURN_BYTES) return count;
    }
    pieces[count++] = (struct iovec){conn->buffer + conn->end, conn->ahead - conn->end};
    return count;
}

bool gw_tcp_conn_read(gw_tcp_conn *conn, const gw_sink *sink) {
    size_t moved = 0;
    while (moved < TURN_BYTES && conn->status == GW_OK) {
        struct iovec pieces[2];
        int count = scatter(conn, pieces);
        size_t room = pieces[0].iov_len + (count > 1 ? pieces[1].iov_len : 0);
        ssize_t got = count > 1 ? readv(conn->fd, pieces, count) : recv(conn->fd, pieces[0].iov_base, room, 0);
        if (got <= 0) return read_failed(conn, got, errno) || moved > 0;
        moved += (size_t)got;
        uint64_t direct = conn->piecewise ? 0 : conn->left;
        size_t payload = (uint64_t)got < direct ? (size_t)got : (size_t)direct;
        conn->end += (size_t)got - payload;
        if (payload > 0) land(conn, sink, payload);
        parse(conn, sink);
        if ((size_t)got < room) break; /* the socket is empty: asking again would only tell so */
    }
    return moved > 0;
}

/* At 1 Gbit/s a segment comes every half millisecond, and a wake-up costs 10 to 25 us of a core that may be computing.
 * Nothing behind a payload is of use before the payload is here, so no more than that is waited for. */
void gw_tcp_conn_doze(gw_tcp_conn *conn, bool sleeping) {
    uint64_t still = conn->left ? conn->left - conn->end : 0; /* the beginning of a piece is here already */
    uint64_t rest = still < DOZE_BYTES ? still : DOZE_BYTES;
    uint64_t low_water = sleeping && rest > SMALL_BYTES ? rest : 1;
    int value = (int)low_water;
    if (low_water == conn->low_water || conn->fd < 0) return;
    if (setsockopt(conn->fd, SOL_SOCKET, SO_RCVLOWAT, &value, sizeof value) == 0) conn->low_water = low_water;
}

/* ---- sending ---- */

/* The pieces of the first packets of the queue that are still to go. */
static int gather(const gw_packet *packet, size_t turn, struct iovec pieces[GATHER],
                  uint8_t headers[][GW_FRAME_BYTES], size_t *total) {
    int count = 0;
    *total = 0;
    for (int i = 0; packet && count + 2 <= GATHER && *total < turn; i++, packet = packet->next) {
        uint64_t done = packet->progress;
        if (done < GW_FRAME_BYTES) {
            gw_frame_write(&packet->frame, headers[i]);
            pieces[count++] = (struct iovec){headers[i] + done, GW_FRAME_BYTES - (size_t)done};
            *total += GW_FRAME_BYTES - (size_t)done;
            done = GW_FRAME_BYTES;
        }
        uint64_t left = packet->frame.length - (done - GW_FRAME_BYTES);
        if (left == 0) continue;
        size_t bytes = left < turn ? (size_t)left : turn;
        pieces[count++] = (struct iovec){(uint8_t *)(uintptr_t)packet->data + (done - GW_FRAME_BYTES), bytes};
        *total += bytes; /* a payload that was cut short has filled the turn: nothing can follow it */
    }
    return count;
}

static uint64_t packet_bytes(const gw_packet *packet) { return GW_FRAME_BYTES + packet->frame.length; }

/* The kernel took so many bytes of the queue. All of it is noted before anybody is told, who may queue more. */
static void consume(gw_packet_queue *queue, int peer, const gw_sink *sink, size_t bytes) {
    for (gw_packet *packet = queue->head; bytes > 0; packet = packet->next) {
        uint64_t left = packet_bytes(packet) - packet->progress;
        size_t taken = bytes < left ? bytes : (size_t)left;
        packet->progress += taken;
        bytes -= taken;
    }
    while (queue->head && queue->head->progress == packet_bytes(queue->head)) {
        gw_packet *packet = queue->head;
        queue->head = packet->next;
        if (!queue->head) queue->tail = NULL;
        sink->sent(sink->ctx, peer, packet);
    }
}

static gw_tcp_flow write_failed(gw_tcp_conn *conn, int error) {
    if (error == EAGAIN) return GW_TCP_BLOCKED;
    if (error == EINTR) return GW_TCP_MOVED;
    end(conn, status_of(error), "%s", strerror(error));
    if (error == EPIPE || error == ECONNRESET) {
        conn->status = GW_OK; /* the peer may have said something before it went: to be read first */
        conn->mute = true;
    }
    return GW_TCP_BROKEN;
}

gw_tcp_flow gw_tcp_conn_write(gw_tcp_conn *conn, gw_packet_queue *queue, const gw_sink *sink, bool *moved) {
    size_t sum = 0;
    while (queue->head && sum < conn->turn) {
        if (conn->mute || conn->status != GW_OK) return GW_TCP_BROKEN;
        struct iovec pieces[GATHER];
        uint8_t headers[GATHER][GW_FRAME_BYTES];
        size_t total;
        struct msghdr message = {.msg_iov = pieces};
        message.msg_iovlen = (size_t)gather(queue->head, conn->turn, pieces, headers, &total);
        ssize_t took = sendmsg(conn->fd, &message, MSG_NOSIGNAL);
        if (took < 0) return write_failed(conn, errno);
        *moved = true;
        sum += (size_t)took;
        consume(queue, conn->peer, sink, (size_t)took);
        if ((size_t)took < total) return GW_TCP_BLOCKED;
    }
    return GW_TCP_MOVED;
}
