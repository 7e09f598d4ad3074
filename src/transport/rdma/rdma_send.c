/* rdma_send.c - sending: packet queues, receive buffers that peers advertised, messages and writes.
 *
 * Cost of a large message: one fi_writedata where the receiver's grant named the buffer; an offer, its answer and the
 * write where there was no grant. A payload whose buffer has another length, or that is longer than the provider's
 * messages, or that has a sum, is written without immediate data, and one more message (WRITTEN) follows: directly
 * after the write where the provider keeps that order, else when the write is known to have arrived. */
#include "transport/rdma/rdma_internal.h"

#include "base/crc32c.h"

#include <stdlib.h>
#include <string.h>

typedef enum outcome { GONE, REFUSED, BROKEN } outcome; /* REFUSED: not now */

/* ---- records ---- */

static record *take_record(rdma *r, int rank, record_kind kind, gw_packet *packet) {
    peer *p = &r->peers[rank];
    record *taken = r->spare;
    if (!taken || p->under_way == RECORDS_PER_PEER) return NULL;
    r->spare = taken->next;
    p->under_way++;
    taken->kind = kind;
    taken->peer = rank;
    taken->packet = packet;
    taken->source = NULL;
    taken->apart = false;
    taken->notifier = NULL;
    return taken;
}

static void give_record(rdma *r, record *given) {
    if (given->notifier) give_record(r, given->notifier);
    gw_rdma_memory_give(&r->cache, given->source);
    r->peers[given->peer].under_way--;
    given->next = r->spare;
    r->spare = given;
}

static void finish(rdma *r, record *done) {
    gw_packet *packet = done->packet;
    int rank = done->peer;
    give_record(r, done);
    if (packet && !r->closing) r->base.sink.sent(r->base.sink.ctx, rank, packet);
}

static outcome outcome_of(rdma *r, int rank, ssize_t result, const char *what) {
    peer *p = &r->peers[rank];
    if (result == 0) {
        if (p->sent++ == 0) gw_rdma_fabric_leave_bbr(&r->fabric, p->fabric_address, p->fabric_address_bytes, false);
        return GONE;
    }
    if (result == -FI_EAGAIN) return REFUSED;
    gw_rdma_fail_peer(r, rank, GW_PEER_LOST, "%s: %s", what, r->fabric.library.strerror((int)-result));
    return BROKEN;
}

/* ---- the peers' receive buffers ---- */

void gw_rdma_learn(rdma *r, int rank, const gw_frame *frame, const gw_rdma_recv_buffer *recv_buffer) {
    peer *p = &r->peers[rank];
    if (recv_buffer->slot >= r->slots_max) {
        gw_rdma_fail_peer(r, rank, GW_PROTOCOL, "it numbers a receive buffer %u", (unsigned)recv_buffer->slot);
        return;
    }
    if (recv_buffer->slot >= p->advert_room) {
        uint32_t room = p->advert_room ? p->advert_room : 16;
        while (room <= recv_buffer->slot) room *= 2;
        advert *grown = realloc(p->adverts, room * sizeof *grown);
        if (!grown) return; /* the message will be offered instead */
        memset(grown + p->advert_room, 0, (room - p->advert_room) * sizeof *grown);
        p->adverts = grown;
        p->advert_room = room;
    }
    p->adverts[recv_buffer->slot] = (advert){.used = true, .comm = frame->comm, .channel = frame->channel,
                                         .op = frame->op, .recv_buffer = *recv_buffer};
}

static advert *find_advert(peer *p, const gw_frame *frame) {
    for (uint32_t i = 0; i < p->advert_room; i++) {
        advert *a = &p->adverts[i];
        if (a->used && a->recv_buffer.index == frame->index && a->op == frame->op && a->channel == frame->channel &&
            a->comm == frame->comm && a->recv_buffer.bytes >= frame->length)
            return a;
    }
    return NULL;
}

/* ---- messages ---- */

/* Refused by libfabric for now. */
static void put_off(rdma *r, record *rec) {
    rec->next = r->due;
    r->due = rec;
}

static outcome post(rdma *r, record *rec, size_t length) {
    peer *p = &r->peers[rec->peer];
    bool data = rec->packet && rec->packet->frame.kind == GW_FRAME_DATA;
    bool inject = length <= r->fabric.inject_max && !data; /* sent() of a payload waits until it has left */
    void *descriptor = r->buffer_memory ? r->buffer_memory->descriptor : NULL;
    ssize_t result = inject ? fi_inject(r->fabric.endpoint, rec->buffer, length, p->address)
                            : fi_send(r->fabric.endpoint, rec->buffer, length, descriptor, p->address, rec);
    outcome gone = outcome_of(r, rec->peer, result, "sending failed");
    if (gone == GONE) r->counters.messages++;
    if (gone == GONE && inject) finish(r, rec);
    return gone;
}

/* Adds the receive buffers of the messages that this frame grants. */
static void add_recv_buffers(rdma *r, int rank, const gw_packet *packet, gw_rdma_message *m) {
    for (uint64_t i = packet->first; i < packet->frame.index && m->recv_buffer_count < GW_RDMA_RECV_BUFFERS_MAX; i++) {
        uint64_t bytes = 0;
        void *at = r->base.sink.granted ? r->base.sink.granted(r->base.sink.ctx, rank, packet, i, &bytes) : NULL;
        if (!at || bytes <= GW_RDMA_INLINE_BYTES) continue;
        gw_frame data = packet->frame;
        data.kind = GW_FRAME_DATA;
        data.credits = 0;
        data.index = i;
        data.length = bytes;
        slot *s = gw_rdma_slot_take(r, rank, &data, at, bytes, NULL);
        if (s) m->recv_buffers[m->recv_buffer_count++] = s->recv_buffer; /* else its sender will ask */
    }
}

/* Adds the sum, if there is one; returns the length. */
static size_t with_sum(const rdma *r, const record *rec, size_t length) {
    return r->peers[rec->peer].summed ? gw_rdma_message_add_sum(rec->buffer, length) : length;
}

static outcome send_message(rdma *r, int rank, gw_packet *packet, gw_rdma_message *m) {
    record *rec = take_record(r, rank, RECORD_MESSAGE, packet);
    if (!rec) return REFUSED;
    m->from = r->rank;
    size_t length = gw_rdma_message_write(m, r->peers[rank].cookie, rec->buffer);
    uint64_t payload = m->kind == GW_RDMA_FRAME ? m->frame.length : 0;
    if (payload) memcpy(rec->buffer + length, packet->data, payload);
    outcome gone = post(r, rec, with_sum(r, rec, length + payload));
    if (gone == GONE) r->counters.copied += payload;
    else give_record(r, rec);
    return gone;
}

static outcome send_frame(rdma *r, int rank, gw_packet *packet) {
    gw_rdma_message m = {.kind = GW_RDMA_FRAME, .frame = packet->frame};
    if (packet->frame.kind == GW_FRAME_GRANT) add_recv_buffers(r, rank, packet, &m);
    return send_message(r, rank, packet, &m);
}

/* ---- writes ---- */

/* For a message that must be sent, because its write has been started. */
static void post_or_put_off(rdma *r, record *rec) {
    outcome gone = post(r, rec, rec->length);
    if (gone == BROKEN) give_record(r, rec);
    if (gone == REFUSED) put_off(r, rec);
}

/* Tells the receiver, with the record rec, that the payload of `written` is in its buffer. */
static void send_written(rdma *r, record *rec, const record *written) {
    const gw_packet *packet = written->packet;
    const peer *p = &r->peers[rec->peer];
    gw_rdma_message m = {.kind = GW_RDMA_WRITTEN, .from = r->rank, .frame = packet->frame,
                         .slot = written->target.slot, .nonce = written->target.nonce};
    if (p->summed) m.payload_sum = gw_crc32c(0, packet->data, packet->frame.length);
    rec->length = with_sum(r, rec, gw_rdma_message_write(&m, p->cookie, rec->buffer));
    rec->kind = RECORD_MESSAGE;
    post_or_put_off(r, rec);
}

static ssize_t write_part(rdma *r, record *rec, size_t bytes) {
    const gw_packet *packet = rec->packet;
    struct iovec piece = {(uint8_t *)(uintptr_t)packet->data + rec->started, bytes};
    struct fi_rma_iov where = {.addr = rec->target.address + rec->started, .len = bytes, .key = rec->target.key};
    void *descriptor = rec->source ? rec->source->descriptor : NULL;
    struct fi_msg_rma message = {.msg_iov = &piece, .desc = &descriptor, .iov_count = 1,
                                 .addr = r->peers[rec->peer].address, .rma_iov = &where, .rma_iov_count = 1,
                                 .context = rec};
    uint64_t flags = FI_COMPLETION | (r->fabric.in_order ? 0 : FI_DELIVERY_COMPLETE);
    return fi_writemsg(r->fabric.endpoint, &message, flags);
}

/* Starts the next part of a write without immediate data. One runs at a time: a record is one context. */
static void write_on(rdma *r, record *rec) {
    uint64_t left = rec->packet->frame.length - rec->started;
    size_t bytes = left < r->fabric.message_max ? (size_t)left : r->fabric.message_max;
    ssize_t result = write_part(r, rec, bytes);
    if (result == -FI_EAGAIN) {
        put_off(r, rec);
    } else if (result) {
        gw_rdma_fail_peer(r, rec->peer, GW_PEER_LOST, "writing failed: %s", r->fabric.library.strerror((int)-result));
        give_record(r, rec);
    } else {
        rec->started += bytes;
        if (rec->notifier && bytes == left) {
            send_written(r, rec->notifier, rec);
            rec->notifier = NULL;
        }
    }
}

/* Starts a write without immediate data. Where the WRITTEN message follows at once, its record is taken beforehand. */
static outcome write_apart(rdma *r, record *rec, const gw_rdma_recv_buffer *recv_buffer) {
    rec->apart = true;
    rec->target = *recv_buffer;
    rec->started = 0;
    if (r->fabric.in_order && !(rec->notifier = take_record(r, rec->peer, RECORD_MESSAGE, NULL))) return REFUSED;
    write_on(r, rec);
    return GONE;
}

/* One write with immediate data: one completion here, one there. */
static outcome write_whole(rdma *r, record *rec, const gw_rdma_recv_buffer *recv_buffer) {
    const gw_frame *frame = &rec->packet->frame;
    uint64_t place = (uint64_t)recv_buffer->slot * (uint64_t)r->world + (uint64_t)r->rank;
    uint64_t immediate = gw_rdma_immediate(place, frame->credits, recv_buffer->nonce);
    if (r->fabric.immediate_bytes == 4) immediate = (uint32_t)immediate;
    ssize_t result = r->fabric.stamps
                         ? gw_rdma_write_stamped(r, rec, recv_buffer, immediate)
                         : fi_writedata(r->fabric.endpoint, rec->packet->data, frame->length,
                                        rec->source ? rec->source->descriptor : NULL, immediate,
                                        r->peers[rec->peer].address, recv_buffer->address, recv_buffer->key, rec);
    return outcome_of(r, rec->peer, result, "writing failed");
}

static bool may_write_whole(const rdma *r, const gw_frame *frame, const gw_rdma_recv_buffer *recv_buffer) {
    return r->fabric.immediate_bytes && frame->length == recv_buffer->bytes && frame->length <= r->fabric.message_max &&
           frame->credits < 16;
}

static outcome write_payload(rdma *r, int rank, gw_packet *packet, advert *where) {
    gw_error error = {.rank = -1};
    record *rec = take_record(r, rank, RECORD_WRITE, packet);
    if (!rec) return REFUSED;
    if (r->fabric.register_local) {
        rec->source = gw_rdma_memory_take(&r->cache, packet->data, packet->frame.length, FI_WRITE, &error);
        if (!rec->source) {
            give_record(r, rec);
            gw_rdma_fail_peer(r, rank, error.status, "%s", error.text);
            return BROKEN;
        }
    }
    bool whole = !r->peers[rank].summed && may_write_whole(r, &packet->frame, &where->recv_buffer);
    outcome gone = whole ? write_whole(r, rec, &where->recv_buffer) : write_apart(r, rec, &where->recv_buffer);
    if (gone == GONE) {
        where->used = false;
        r->counters.writes++;
    } else {
        give_record(r, rec);
    }
    return gone;
}

static outcome offer(rdma *r, int rank, gw_packet *packet) {
    gw_rdma_message m = {.kind = GW_RDMA_OFFER, .frame = packet->frame};
    outcome gone = send_message(r, rank, NULL, &m);
    if (gone == GONE) r->counters.offers++;
    return gone;
}

/* ---- queues ---- */

void gw_rdma_list(rdma *r, int rank) {
    peer *p = &r->peers[rank];
    if (p->listed) return;
    p->listed = true;
    r->backlog[r->backlog_count++] = rank;
}

static outcome answer_next(rdma *r, int rank) {
    peer *p = &r->peers[rank];
    slot *s = p->slots;
    while (!s->clear_due) s++;
    gw_rdma_message m = {
        .kind = GW_RDMA_CLEAR, .frame = s->frame, .recv_buffer_count = 1, .recv_buffers = {s->recv_buffer}};
    outcome gone = send_message(r, rank, NULL, &m);
    if (gone != GONE) return gone;
    s->clear_due = false;
    p->clears_due--;
    return GONE;
}

/* Sends the first of the queue. It is removed first: sent() may be called from within, and queue more. */
static outcome send_next(rdma *r, int rank) {
    peer *p = &r->peers[rank];
    gw_packet *packet = p->head, *rest = packet->next;
    bool large = packet->frame.kind == GW_FRAME_DATA && packet->frame.length > GW_RDMA_INLINE_BYTES;
    advert *where = large ? find_advert(p, &packet->frame) : NULL;
    p->head = rest;
    if (!rest) p->tail = NULL;
    outcome gone = !large  ? send_frame(r, rank, packet)
                   : where ? write_payload(r, rank, packet, where)
                           : offer(r, rank, packet);
    if (gone == GONE && large && !where) {
        packet->next = p->offered;
        p->offered = packet;
    } else if (gone != GONE) {
        packet->next = p->head;
        p->head = packet;
        if (!p->tail) p->tail = packet;
    }
    return gone;
}

bool gw_rdma_flush(rdma *r, int rank) {
    peer *p = &r->peers[rank];
    bool moved = false;
    if (p->flushing || !p->known) return false;
    p->flushing = true;
    while ((p->clears_due || p->head) && p->status == GW_OK) {
        if ((p->clears_due ? answer_next(r, rank) : send_next(r, rank)) != GONE) break;
        moved = true;
    }
    p->flushing = false;
    return moved;
}

bool gw_rdma_flush_due(rdma *r) {
    record *list = r->due;
    r->due = NULL;
    bool any = list != NULL;
    while (list) {
        record *rec = list;
        list = rec->next;
        if (r->peers[rec->peer].status != GW_OK) give_record(r, rec);
        else if (rec->kind == RECORD_WRITE) write_on(r, rec);
        else post_or_put_off(r, rec);
    }
    return any;
}

void gw_rdma_done(rdma *r, record *done) {
    bool apart = done->kind == RECORD_WRITE && done->apart;
    if (apart && r->peers[done->peer].status != GW_OK) give_record(r, done);
    else if (apart && done->started < done->packet->frame.length) write_on(r, done);
    else if (apart && !r->fabric.in_order) send_written(r, done, done);
    else finish(r, done);
}

void gw_rdma_failed(rdma *r, record *done, const char *why) {
    gw_rdma_fail_peer(r, done->peer, GW_PEER_LOST, "%s", why);
    give_record(r, done);
}
