/* flow_control.c - frames from and to peers: dispatch to operations, grants (clear-to-send), credits, unexpected
 * messages.
 *
 * Cost: one grant frame for every GW_PIPELINE/2 large messages of a stream, none for small ones; one copy for a small
 * message that arrives before its operation is started here. */
#include "engine/engine_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/copy.h"
#include "engine/engine_trace.h"

#define SIGNAL_BYTES 256

static const char *host(gw_engine *engine, int rank) {
    return engine->config.host_name(engine->config.events.ctx, rank);
}

gw_team *gw_engine_team(gw_engine *engine, uint32_t id) {
    gw_team *team = engine->teams;
    while (team && team->id != id) team = team->next;
    return team;
}

/* True if this collective is over here, false if it is not started yet. Reports a mismatch with a past call. */
static bool is_over(gw_engine *engine, int peer, const gw_frame *frame) {
    gw_team *team = gw_engine_team(engine, frame->comm);
    if (!team || (frame->op & GW_PAIR_OP) || frame->op >= team->next_op) return false;
    if (team->next_op - frame->op > GW_HISTORY) return true;
    const gw_signature *past = &team->history[frame->op % GW_HISTORY];
    gw_signature theirs = gw_signature_of_frame(frame);
    if (theirs.collective == GW_COLL_ALLTOALLV) theirs.count = past->count; /* of a pair: it was compared then */
    if (!gw_signature_equal(past, &theirs)) gw_engine_frame_mismatch(engine, peer, frame, past);
    return true;
}

/* A grant to a tagged send may have been offered to whatever send has this number: then it need not fit. */
static bool is_offer(const gw_frame *frame) { return frame->kind == GW_FRAME_GRANT && gw_frame_is_tagged(frame); }

gw_op *gw_engine_find(gw_engine *engine, int peer, const gw_frame *frame) {
    for (gw_op *op = engine->active; op; op = op->next) {
        if (op->number != frame->op || op->team->id != frame->comm) continue;
        if (op->pair_peer >= 0 && op->pair_peer != peer) continue;
        gw_signature theirs = gw_signature_of_frame(frame), mine = gw_op_expects(op, peer, frame);
        if (gw_signature_equal(&mine, &theirs)) return op;
        if (!is_offer(frame)) gw_engine_frame_mismatch(engine, peer, frame, &mine);
        return NULL;
    }
    return NULL;
}

/* Unexpected messages. */

uint64_t gw_flow_eager_bytes(const gw_op *op, int peer) {
    const gw_transport *transport = op->engine->peers[peer].transport;
    return op->spec.eager && op->pair_peer < 0 && !transport->ops->writes_there ? GW_EAGER_COLLECTIVE_BYTES
                                                                                : GW_EAGER_BYTES;
}

#define UNEXPECTED_BYTES_MIN 4096

/* The memory of a slot grows with its messages: many peers with small ones take little. */
static bool make_room(gw_unexpected *slot, uint64_t bytes) {
    size_t room = slot->room ? slot->room : UNEXPECTED_BYTES_MIN;
    if (slot->bytes && bytes <= room) return true;
    while (room < bytes) room *= 2;
    uint8_t *memory = malloc(room);
    if (!memory) return false;
    free(slot->bytes);
    slot->bytes = memory;
    slot->room = room;
    return true;
}

/* NULL: reported. */
static gw_unexpected *unexpected_slot(gw_engine *engine, int peer, const gw_frame *frame) {
    gw_peer *from = &engine->peers[peer];
    bool granted = (frame->flags & GW_FRAME_EAGER) && frame->length <= GW_EAGER_COLLECTIVE_BYTES;
    for (int i = 0; granted && i < GW_EAGER_SLOTS; i++) {
        gw_unexpected *slot = &from->unexpected[i];
        if (slot->used) continue;
        if (!make_room(slot, frame->length)) {
            gw_engine_report(engine, GW_MEMORY, -1, "out of memory for %" PRIu64 " bytes that rank %d on %s has sent",
                             frame->length, peer, host(engine, peer));
            return NULL;
        }
        slot->used = true;
        slot->complete = false;
        slot->begun = engine->trace ? gw_trace_now(engine->trace) : 0;
        slot->frame = *frame;
        from->unexpected_used++;
        return slot;
    }
    gw_engine_report(engine, GW_PROTOCOL, peer, "rank %d on %s sent %" PRIu64 " bytes that were not granted", peer,
                     host(engine, peer), frame->length);
    return NULL;
}

/* The unexpected message with these numbers, complete or still arriving; NULL: none. */
static gw_unexpected *find_unexpected(gw_peer *peer, uint32_t comm, uint64_t op, uint32_t channel, uint64_t index) {
    for (int i = 0; peer->unexpected_used && i < GW_EAGER_SLOTS; i++) {
        gw_unexpected *slot = &peer->unexpected[i];
        if (slot->used && slot->frame.comm == comm && slot->frame.op == op && slot->frame.channel == channel &&
            slot->frame.index == index)
            return slot;
    }
    return NULL;
}

static void free_unexpected(gw_peer *peer, gw_unexpected *slot) {
    slot->used = false;
    peer->unexpected_used--;
    peer->owed++;
}

static void mark_all(gw_engine *engine) {
    for (gw_op *op = engine->active; op; op = op->next) gw_op_mark(op);
}

bool gw_flow_take_unexpected(gw_op *op, gw_stream_state *stream, uint64_t index) {
    gw_peer *peer = &op->engine->peers[stream->peer];
    gw_unexpected *slot = find_unexpected(peer, op->team->id, op->number, stream->desc.channel, index);
    if (!slot || !slot->complete) return false;
    gw_posted_recv *recv = &stream->recvs[index % GW_PIPELINE];
    gw_signature theirs = gw_signature_of_frame(&slot->frame), mine = gw_op_expects(op, stream->peer, &slot->frame);
    if (!gw_signature_equal(&mine, &theirs)) {
        gw_engine_frame_mismatch(op->engine, stream->peer, &slot->frame, &mine);
        return false;
    }
    if (slot->frame.length > recv->bytes) {
        gw_engine_report(op->engine, GW_PROTOCOL, stream->peer, "rank %d sent %" PRIu64 " bytes where %" PRIu64 " fit",
                         stream->peer, slot->frame.length, recv->bytes);
        return false;
    }
    if (slot->frame.length) gw_copy(recv->buffer, slot->bytes, slot->frame.length);
    recv->bytes = slot->frame.length;
    recv->arrived = true;
    if (op->engine->trace) gw_engine_trace_arrived(op, stream, &slot->frame, slot->begun, slot->arrived);
    free_unexpected(peer, slot);
    return true;
}

uint64_t gw_flow_unexpected(const gw_op *op, const gw_stream_state *stream) {
    const gw_peer *peer = &op->engine->peers[stream->peer];
    uint64_t count = 0;
    for (int i = 0; i < GW_EAGER_SLOTS; i++) {
        const gw_unexpected *slot = &peer->unexpected[i];
        count += slot->used && slot->complete && slot->frame.comm == op->team->id && slot->frame.op == op->number &&
                 slot->frame.channel == stream->desc.channel;
    }
    return count;
}

/* Reports unexpected messages for the new operation that have another signature: they would wait for ever. */
static void check_unexpected(gw_op *op) {
    for (int r = 0; r < op->team->size; r++) {
        int job_rank = op->team->members[r];
        gw_peer *peer = &op->engine->peers[job_rank];
        for (int i = 0; peer->unexpected_used && i < GW_EAGER_SLOTS; i++) {
            gw_unexpected *slot = &peer->unexpected[i];
            if (!slot->used || slot->frame.comm != op->team->id || slot->frame.op != op->number) continue;
            if (op->pair_peer >= 0 && op->pair_peer != job_rank) continue;
            gw_signature theirs = gw_signature_of_frame(&slot->frame), mine = gw_op_expects(op, job_rank, &slot->frame);
            if (!gw_signature_equal(&mine, &theirs))
                gw_engine_frame_mismatch(op->engine, job_rank, &slot->frame, &mine);
        }
    }
}

/* Grants. */

void gw_flow_claim_early(gw_op *op) {
    if (op->pair_peer >= 0) {
        gw_early_grants_claim(op, op->pair_peer);
    } else {
        for (int r = 0; r < op->team->size; r++) gw_early_grants_claim(op, op->team->members[r]);
    }
    check_unexpected(op);
}

static void fill_frame(gw_op *op, gw_stream_state *stream, gw_frame *frame, gw_frame_kind kind) {
    gw_peer *peer = &op->engine->peers[stream->peer];
    *frame = (gw_frame){.kind = (uint8_t)kind, .collective = op->signature.collective, .dtype = op->signature.dtype,
                        .redop = op->signature.redop, .builder = op->signature.builder, .root = op->signature.root,
                        .count = op->signature.count + stream->desc.count, .scale = op->signature.scale,
                        .comm = op->team->id, .op = op->number, .channel = stream->desc.channel,
                        .credits = peer->owed, .tag = op->spec.tagged ? (uint32_t)op->spec.tag : 0};
    peer->owed = 0;
}

void gw_flow_grant(gw_op *op, gw_stream_state *stream) {
    const gw_peer *peer = &op->engine->peers[stream->peer];
    bool wanted = stream->large_to > stream->granted || peer->unexpected_used == GW_EAGER_SLOTS;
    bool starving = stream->granted <= stream->done || stream->posted == gw_op_allowed(op, stream);
    if (wanted && (starving || stream->posted - stream->granted >= GW_PIPELINE / 2))
        gw_flow_grant_all(op, stream, op->number);
}

void gw_flow_grant_all(gw_op *op, gw_stream_state *stream, uint64_t number) {
    gw_peer *peer = &op->engine->peers[stream->peer];
    if (stream->signal_queued || stream->granted >= stream->posted || peer->lost) return;
    stream->signal_packet = (gw_packet){.owner = op, .first = stream->granted};
    stream->granted = stream->posted;
    stream->signal_queued = true;
    fill_frame(op, stream, &stream->signal_packet.frame, GW_FRAME_GRANT);
    stream->signal_packet.frame.op = number;
    stream->signal_packet.frame.index = stream->granted;
    op->engine->counters.grants_sent++;
    peer->transport->ops->send(peer->transport, stream->peer, &stream->signal_packet);
}

/* Announces a tagged send whose first message cannot be eager. */
static void request_grant(gw_op *op, gw_stream_state *stream) {
    gw_transport *transport = op->engine->peers[stream->peer].transport;
    op->requested = true;
    stream->signal_packet = (gw_packet){.owner = op};
    stream->signal_queued = true;
    fill_frame(op, stream, &stream->signal_packet.frame, GW_FRAME_RTS);
    transport->ops->send(transport, stream->peer, &stream->signal_packet);
}

bool gw_flow_send(gw_op *op, gw_stream_state *stream, const void *data, uint64_t bytes) {
    gw_peer *peer = &op->engine->peers[stream->peer];
    bool eager = stream->posted >= stream->granted;
    bool large = bytes > gw_flow_eager_bytes(op, stream->peer), announced = op->requested && stream->posted == 0;
    if (eager && (large || announced || peer->credits == 0)) {
        if (op->spec.tagged && stream->posted == 0 && !op->requested) request_grant(op, stream);
        if (op->engine->trace) gw_engine_trace_refused(op, stream);
        return false;
    }
    if (eager) peer->credits--;
    int slot = (int)(stream->posted % GW_PIPELINE);
    gw_packet *packet = &stream->packet[slot];
    *packet = (gw_packet){.data = data, .owner = op};
    fill_frame(op, stream, &packet->frame, GW_FRAME_DATA);
    packet->frame.index = stream->posted;
    packet->frame.length = bytes;
    if (eager) packet->frame.flags |= GW_FRAME_EAGER;
    /* A small point-to-point message of one packet may overtake: its stream has no other packet, so no order can
     * break. */
    bool signal = op->pair_peer >= 0 && stream->desc.actions == 1 && bytes <= SIGNAL_BYTES;
    packet->urgency = signal ? GW_URGENT_SIGNAL : op->spec.urgency;
    if (large) { /* credits are not put on a large frame: they would wait for its payload */
        peer->owed = packet->frame.credits;
        packet->frame.credits = 0;
    }
    stream->left[slot] = false;
    stream->posted++;
    op->engine->counters.messages_sent++;
    op->engine->counters.bytes_sent += bytes;
    if (op->engine->trace) gw_engine_trace_handed(op, stream, slot);
    peer->transport->ops->send(peer->transport, stream->peer, packet);
    return true;
}

/* Credits return with other frames, or in a frame of their own when the sender may run out of them. */
static void return_credits(gw_engine *engine, int rank) {
    gw_peer *peer = &engine->peers[rank];
    bool needed =
        peer->owed >= GW_EAGER_SLOTS / 2 || (peer->owed && peer->owed + peer->unexpected_used >= GW_EAGER_SLOTS);
    if (!needed || peer->credit_queued || peer->lost || !peer->transport) return;
    peer->credit_packet = (gw_packet){.frame = {.kind = GW_FRAME_CREDIT, .credits = peer->owed, .root = -1}};
    peer->owed = 0;
    peer->credit_queued = true;
    peer->transport->ops->send(peer->transport, rank, &peer->credit_packet);
}

void gw_flow_settle(gw_engine *engine) {
    for (int r = 0; r < engine->config.world; r++)
        if (engine->peers[r].owed) return_credits(engine, r);
}

/* The sink: callbacks from transports. */

/* The posted receive of a DATA frame; NULL: its action is not posted yet. Reports a frame that does not fit. */
static gw_posted_recv *find_posted(gw_engine *engine, gw_op *op, int peer, const gw_frame *frame,
                                   gw_stream_state **found) {
    gw_stream_state *stream = gw_op_stream(op, GW_STREAM_RECV, peer, frame->channel);
    *found = stream;
    if (!stream || frame->index >= stream->desc.actions || frame->index < stream->done) {
        gw_engine_report(engine, GW_PROTOCOL, peer,
                         "rank %d on %s sent message %" PRIu64 " on channel %u of operation #%" PRIu64
                         ", which expects no such message: do all ranks run the same version of gradwire?",
                         peer, host(engine, peer), frame->index, frame->channel, GW_OP_NUMBER(frame->op));
        return NULL;
    }
    if (frame->index >= stream->posted) return NULL;
    gw_posted_recv *recv = &stream->recvs[frame->index % GW_PIPELINE];
    bool fits = op->spec.out_lengths ? frame->length <= recv->bytes : frame->length == recv->bytes;
    if (!fits || recv->arrived) {
        gw_engine_report(engine, GW_PROTOCOL, peer,
                         "message %" PRIu64 " of operation #%" PRIu64 " from rank %d on %s has %" PRIu64
                         " bytes, %" PRIu64 " were expected: do all ranks run the same version of gradwire?",
                         frame->index, GW_OP_NUMBER(frame->op), peer, host(engine, peer), frame->length, recv->bytes);
        return NULL;
    }
    return recv;
}

static void report_over(gw_engine *engine, int peer, const gw_frame *frame) {
    gw_engine_report(engine, GW_PROTOCOL, peer, "rank %d on %s sent data for operation #%" PRIu64 ", which is over",
                     peer, host(engine, peer), GW_OP_NUMBER(frame->op));
}

/* Refuses and reports a message that a second connection delivers too: only one may write to a buffer. recv: NULL if
 * its action is not posted. */
static bool is_duplicate(gw_engine *engine, int peer, const gw_frame *frame, const gw_posted_recv *recv) {
    bool early = find_unexpected(&engine->peers[peer], frame->comm, frame->op, frame->channel, frame->index) != NULL;
    if (!early && !(recv && recv->taken)) return false;
    gw_engine_report(engine, GW_PROTOCOL, peer,
                     "rank %d on %s sent message %" PRIu64 " of operation #%" PRIu64 " twice, by two connections: do "
                     "all ranks run the same version of gradwire?",
                     peer, host(engine, peer), frame->index, GW_OP_NUMBER(frame->op));
    return true;
}

/* A message of a tagged send announces it, and its receive must be known before its data are placed. Any message does:
 * those of a granted send may overtake each other. */
static void note_announcement(gw_engine *engine, int peer, const gw_frame *frame) {
    if (gw_frame_is_tagged(frame) && !engine->halted) gw_pair_announced(engine, peer, frame);
}

static void *sink_recv_buffer(void *ctx, int peer, const gw_frame *frame) {
    gw_engine *engine = ctx;
    note_announcement(engine, peer, frame);
    gw_op *op = gw_engine_find(engine, peer, frame);
    if (engine->halted) return NULL;
    gw_stream_state *stream;
    gw_posted_recv *recv = op ? find_posted(engine, op, peer, frame, &stream) : NULL;
    if (engine->halted || is_duplicate(engine, peer, frame, recv)) return NULL;
    if (recv) {
        recv->taken = true;
        recv->begun = engine->trace ? gw_trace_now(engine->trace) : 0;
        return recv->buffer;
    }
    if (!op && is_over(engine, peer, frame)) {
        report_over(engine, peer, frame);
        return NULL;
    }
    gw_unexpected *slot = unexpected_slot(engine, peer, frame);
    return slot ? slot->bytes : NULL;
}

/* Reduces from the transport's memory, if it is the action's turn. */
static bool sink_part(void *ctx, int peer, const gw_frame *frame, uint64_t at, const void *data, uint64_t bytes) {
    gw_engine *engine = ctx;
    if (at == 0) note_announcement(engine, peer, frame);
    if (engine->halted) return at > 0;
    gw_op *op = gw_engine_find(engine, peer, frame);
    gw_stream_state *stream = NULL;
    gw_posted_recv *recv = op && !engine->halted ? find_posted(engine, op, peer, frame, &stream) : NULL;
    if (engine->halted || !recv) return at > 0;
    bool begins = at == 0 && (bytes == 0 || !recv->acted);
    if (begins && is_duplicate(engine, peer, frame, recv)) return false;
    if (at == 0) recv->begun = engine->trace ? gw_trace_now(engine->trace) : 0;
    recv->taken |= gw_op_reduce_part(op, stream, frame->index, at, data, bytes);
    return recv->taken;
}

/* This payload is in the receive buffer that was given to its connection. */
static bool is_own_payload(const gw_posted_recv *recv, const gw_frame *frame, const void *data) {
    if (!recv || !recv->taken) return false;
    return data == recv->buffer || (recv->acted && !data && frame->length);
}

/* The unexpected slot that sink_recv_buffer gave for this payload; NULL: none. */
static gw_unexpected *unexpected_holding(gw_peer *peer, const void *data) {
    for (int i = 0; data && peer->unexpected_used && i < GW_EAGER_SLOTS; i++)
        if (peer->unexpected[i].used && peer->unexpected[i].bytes == data) return &peer->unexpected[i];
    return NULL;
}

static void keep_unexpected(gw_engine *engine, gw_unexpected *slot) {
    slot->complete = true;
    slot->arrived = engine->trace ? gw_trace_now(engine->trace) : 0;
    engine->counters.unexpected++;
    /* Meanwhile the operation may have been started, or its action posted. If the queue is full, grants are needed. */
    mark_all(engine);
}

static void data_arrived(gw_engine *engine, int peer, const gw_frame *frame, const void *data) {
    gw_peer *from = &engine->peers[peer];
    gw_unexpected *slot = unexpected_holding(from, data);
    if (slot) {
        keep_unexpected(engine, slot);
        return;
    }
    note_announcement(engine, peer, frame);
    gw_op *op = gw_engine_find(engine, peer, frame);
    if (engine->halted) return;
    gw_stream_state *stream = NULL;
    gw_posted_recv *recv = op ? find_posted(engine, op, peer, frame, &stream) : NULL;
    if (engine->halted || (!is_own_payload(recv, frame, data) && is_duplicate(engine, peer, frame, recv))) return;
    if (recv) {
        if (frame->flags & GW_FRAME_EAGER) from->owed++;
        if (engine->trace) gw_engine_trace_arrived(op, stream, frame, recv->begun, 0);
        gw_op_arrived(op, stream, frame->index, data, frame->length);
        return;
    }
    if (!op && is_over(engine, peer, frame)) {
        report_over(engine, peer, frame);
        return;
    }
    slot = unexpected_slot(engine, peer, frame);
    if (!slot) return;
    if (frame->length) gw_copy(slot->bytes, data, frame->length);
    keep_unexpected(engine, slot);
}

static void grant_arrived(gw_engine *engine, int peer, const gw_frame *frame) {
    gw_op *op = gw_engine_find(engine, peer, frame);
    if (engine->halted) return;
    if (!op) {
        gw_team *team = gw_engine_team(engine, frame->comm);
        bool over = (frame->op & GW_PAIR_OP) ? gw_pair_over(team, peer, frame->op) : is_over(engine, peer, frame);
        if (!over) gw_early_grants_keep(engine, peer, frame);
        return;
    }
    gw_stream_state *stream = gw_op_stream(op, GW_STREAM_SEND, peer, frame->channel);
    if (stream && gw_op_has_tag(op, frame->tag) && frame->index > stream->granted) {
        stream->granted = frame->index;
        gw_op_mark(op);
    }
}

static void sink_arrived(void *ctx, int peer, const gw_frame *frame, const void *data, uint64_t ticket) {
    gw_engine *engine = ctx;
    gw_peer *from = &engine->peers[peer];
    if (!engine->halted) {
        if (frame->credits) {
            from->credits = (uint16_t)(from->credits + frame->credits);
            if (from->credits > GW_EAGER_SLOTS) from->credits = GW_EAGER_SLOTS;
            mark_all(engine);
        }
        if (frame->kind == GW_FRAME_DATA) data_arrived(engine, peer, frame, data);
        else if (frame->kind == GW_FRAME_GRANT) grant_arrived(engine, peer, frame);
        else if (frame->kind == GW_FRAME_RTS) gw_pair_announced(engine, peer, frame);
    }
    if (ticket) from->transport->ops->release(from->transport, peer, ticket);
}

static void *sink_granted(void *ctx, int peer, const gw_packet *grant, uint64_t index, uint64_t *bytes) {
    gw_engine *engine = ctx;
    gw_op *op = grant->owner;
    const gw_stream_state *stream =
        &op->streams[(size_t)((const uint8_t *)grant - (uint8_t *)op->streams) / sizeof *stream];
    const gw_posted_recv *recv = &stream->recvs[index % GW_PIPELINE];
    if (index < stream->done || index >= stream->posted || recv->arrived) return NULL;
    if (find_unexpected(&engine->peers[peer], op->team->id, op->number, stream->desc.channel, index)) return NULL;
    *bytes = recv->bytes;
    return recv->buffer;
}

static void sink_sent(void *ctx, int peer, gw_packet *packet) {
    gw_engine *engine = ctx;
    if (packet->owner) gw_op_sent(packet->owner, packet);
    else engine->peers[peer].credit_queued = false;
}

static void sink_lost(void *ctx, int peer, gw_status status, const char *detail) {
    gw_engine *engine = ctx;
    gw_peer *from = &engine->peers[peer];
    from->lost = true;
    if (!from->left) { /* else the reason is known */
        from->lost_status = status;
        snprintf(from->why_lost, sizeof from->why_lost, "%s", detail);
    }
    mark_all(engine);
}

gw_sink gw_engine_sink(gw_engine *engine) {
    return (gw_sink){.ctx = engine, .recv_buffer = sink_recv_buffer, .part = sink_part,
                     .arrived = sink_arrived, .granted = sink_granted, .sent = sink_sent, .lost = sink_lost};
}

void gw_flow_discard(gw_engine *engine) {
    gw_pair_discard(engine);
    for (int r = 0; r < engine->config.world; r++) {
        gw_peer *peer = &engine->peers[r];
        for (int i = 0; i < GW_EAGER_SLOTS; i++) peer->unexpected[i].used = false;
        peer->unexpected_used = 0;
        peer->early_count = 0;
        peer->credits = GW_EAGER_SLOTS;
        peer->owed = 0;
        peer->credit_queued = false;
        peer->lost = peer->died = false;
    }
}
