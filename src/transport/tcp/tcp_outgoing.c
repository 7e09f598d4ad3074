/* tcp_outgoing.c - the sending side of the tcp transport: a queue for each stream to each peer, and the backlog of
 * those that have packets and a connection. */
#include "transport/tcp/tcp_internal.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>

#define BATCH_BYTES ((uint64_t)64 << 10) /* larger payloads wait for the next poll, to share a call with others */
#define GRACE (2 * GW_MILLISECOND)       /* the higher rank of a pair waits this long for the lower one to dial */

static gw_tcp_out_stream *stream_for(gw_tcp *t, int peer, const gw_frame *frame) {
    uint64_t stream = frame->kind == GW_FRAME_DATA ? frame->index % (uint64_t)t->streams : 0;
    return &t->streams_out[(size_t)peer * (size_t)t->streams + stream];
}

void gw_tcp_watch(gw_tcp *t, gw_tcp_conn *conn, int operation, bool out) {
    struct epoll_event event = {.events = EPOLLIN | (out ? EPOLLOUT : 0), .data.ptr = conn};
    if (epoll_ctl(t->epoll, operation, conn->fd, &event) == 0) {
        conn->polling_out = out;
        return;
    }
    conn->status = GW_SYSTEM;
    snprintf(conn->detail, sizeof conn->detail, "the connection cannot be awaited: %s", strerror(errno));
    t->unsettled = true;
}

static void list(gw_tcp *t, gw_tcp_out_stream *l) {
    if (l->listed) return;
    l->listed = true;
    t->backlog[t->backlog_count++] = l;
}

/* Sends packets while the socket takes bytes; a stream with packets left goes into the backlog. True if it sent any
 * bytes. */
bool gw_tcp_flush(gw_tcp *t, gw_tcp_out_stream *l) {
    bool moved = false;
    l->flushing = true;
    gw_tcp_flow flow = gw_tcp_conn_write(l->out, &l->queue, &t->base.sink, &moved);
    l->flushing = false;
    l->blocked = flow == GW_TCP_BLOCKED;
    if (flow == GW_TCP_BROKEN) t->unsettled = true;
    if (l->out->status == GW_OK && l->out->polling_out != l->blocked)
        gw_tcp_watch(t, l->out, EPOLL_CTL_MOD, l->blocked);
    if (l->queue.head && flow != GW_TCP_BROKEN) list(t, l);
    return moved;
}

bool gw_tcp_flush_backlog(gw_tcp *t) {
    bool moved = false;
    for (int i = 0; i < t->backlog_count;) {
        gw_tcp_out_stream *l = t->backlog[i];
        bool works = !t->lost[l->peer] && !l->out->mute && l->out->status == GW_OK;
        if (works && !l->blocked) moved |= gw_tcp_flush(t, l);
        if (works && l->queue.head) {
            i++;
            continue;
        }
        l->listed = false;
        t->backlog[i] = t->backlog[--t->backlog_count];
    }
    return moved;
}

static void ask_for(gw_tcp *t, gw_tcp_out_stream *l) {
    l->dialled = true;
    t->dial(t->dial_ctx, l->peer, (int)(l - t->streams_out) % t->streams, t->generation);
}

void gw_tcp_want(gw_tcp *t, gw_tcp_out_stream *l, bool wanting) {
    t->wanting += (int)wanting - (int)l->wanting;
    l->wanting = wanting;
    l->since = 0;
}

/* If two ranks dial each other at the same moment, each sends on its own connection, and no data segment can piggyback
 * the other's acknowledgement: one more segment for every small message, 3 us on loopback. So the lower rank dials at
 * once, and the higher one after GRACE. */
bool gw_tcp_dial_overdue(gw_tcp *t, gw_time now) {
    bool dialled = false;
    for (size_t i = 0; t->wanting > 0 && i < (size_t)t->world * (size_t)t->streams; i++) {
        gw_tcp_out_stream *l = &t->streams_out[i];
        if (!l->wanting) continue;
        if (!l->since) l->since = now;
        if (now - l->since < GRACE) continue;
        gw_tcp_want(t, l, false);
        ask_for(t, l);
        dialled = true;
    }
    return dialled;
}

void gw_tcp_send(gw_transport *transport, int peer, gw_packet *packet) {
    gw_tcp *t = (gw_tcp *)transport;
    assert(peer >= 0 && peer < t->world && peer != t->rank);
    gw_tcp_out_stream *l = stream_for(t, peer, &packet->frame);
    bool first = l->queue.head == NULL;
    packet->progress = 0;
    gw_packet_enqueue(&l->queue, packet);
    if (t->lost[peer]) return;
    if (!l->out && !l->dialled && !l->wanting) {
        if (t->rank < peer) ask_for(t, l);
        else gw_tcp_want(t, l, true);
    }
    if (!l->out || !first || l->flushing) return;
    if (packet->frame.length > BATCH_BYTES) list(t, l);
    else gw_tcp_flush(t, l);
}
