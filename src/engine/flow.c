/* flow.c - what passes between this rank and its peers: frames to operations, grants, credits, early messages.
 *
 * Cost: one grant frame for every GW_PIPELINE/2 large messages of a stream, none for small ones; one copy for a small
 * message that comes before its operation was started here. */
#include "engine/engine_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/tracing.h"
#include "transport/copy.h"

#define SIGNAL_BYTES 256

static const char *host(gw_engine *engine, int rank) {
    return engine->config.host_name(engine->config.events.ctx, rank);
}

static gw_team *find_team(gw_engine *engine, uint32_t id) {
    gw_team *team = engine->teams;
    while (team && team->id != id) team = team->next;
    return team;
}

/* A collective that is over here, or not started yet? Reports what cannot be. True: it is over. */
static bool is_over(gw_engine *engine, int peer, const gw_frame *frame) {
    gw_team *team = find_team(engine, frame->comm);
    if (!team || (frame->op & GW_PAIR_OP) || frame->op >= team->next_op) return false;
    if (team->next_op - frame->op > GW_HISTORY) return true;
    const gw_signature *past = &team->history[frame->op % GW_HISTORY];
    gw_signature theirs = gw_signature_of_frame(frame);
    if (!gw_signature_equal(past, &theirs)) gw_engine_frame_mismatch(engine, peer, frame, past);
    return true;
}

gw_op *gw_engine_find(gw_engine *engine, int peer, const gw_frame *frame) {
    for (gw_op *op = engine->active; op; op = op->next) {
        if (op->number != frame->op || op->team->id != frame->comm) continue;
        if (op->pair_peer >= 0 && op->pair_peer != peer) continue;
        gw_signature theirs = gw_signature_of_frame(frame);
        if (gw_signature_equal(&op->signature, &theirs)) return op;
        gw_engine_frame_mismatch(engine, peer, frame, &op->signature);
        return NULL;
    }
    return NULL;
}

/* Early messages. */

uint64_t gw_flow_eager_bytes(const gw_op *op, int peer) {
    const gw_transport *transport = op->engine->peers[peer].transport;
    return op->spec.ahead && op->pair_peer < 0 && !transport->ops->writes_there ? GW_AHEAD_BYTES : GW_EAGER_BYTES;
}

static gw_stashed *stash_slot(gw_engine *engine, int peer, const gw_frame *frame) {
    gw_peer *from = &engine->peers[peer];
    if (!(frame->flags & GW_FRAME_EAGER) || frame->length > GW_AHEAD_BYTES || from->stash_used == GW_EAGER_SLOTS)
        return NULL;
    for (int i = 0; i < GW_EAGER_SLOTS; i++) {
        gw_stashed *slot = &from->stash[i];
        if (slot->used) continue;
        if (!slot->bytes) slot->bytes = malloc(GW_AHEAD_BYTES);
        if (!slot->bytes) return NULL;
        slot->used = true;
        slot->complete = false;
        slot->begun = engine->trace ? gw_trace_now(engine->trace) : 0;
        slot->frame = *frame;
        from->stash_used++;
        return slot;
    }
    return NULL;
}

/* The early message with these numbers, whole or still coming; NULL: there is none. */
static gw_stashed *stashed(gw_peer *peer, uint32_t comm, uint64_t op, uint32_t channel, uint64_t index) {
    for (int i = 0; peer->stash_used && i < GW_EAGER_SLOTS; i++) {
        gw_stashed *slot = &peer->stash[i];
        if (slot->used && slot->frame.comm == comm && slot->frame.op == op && slot->frame.channel == channel &&
            slot->frame.index == index)
            return slot;
    }
    return NULL;
}

static void unstash(gw_peer *peer, gw_stashed *slot) {
    slot->used = false;
    peer->stash_used--;
    peer->owed++;
}

static void mark_all(gw_engine *engine) {
    for (gw_op *op = engine->active; op; op = op->next) gw_op_mark(op);
}

bool gw_flow_unstash(gw_op *op, gw_lane *lane, uint64_t index) {
    gw_peer *peer = &op->engine->peers[lane->peer];
    gw_stashed *slot = stashed(peer, op->team->id, op->number, lane->stream.channel, index);
    if (!slot || !slot->complete) return false;
    gw_landing *landing = &lane->land[index % GW_PIPELINE];
    gw_signature theirs = gw_signature_of_frame(&slot->frame);
    if (!gw_signature_equal(&op->signature, &theirs)) {
        gw_engine_frame_mismatch(op->engine, lane->peer, &slot->frame, &op->signature);
        return false;
    }
    if (slot->frame.length > landing->bytes) {
        gw_engine_report(op->engine, GW_PROTOCOL, lane->peer, "rank %d sent %" PRIu64 " bytes where %" PRIu64 " fit",
                         lane->peer, slot->frame.length, landing->bytes);
        return false;
    }
    if (slot->frame.length) gw_copy(landing->at, slot->bytes, slot->frame.length);
    landing->bytes = slot->frame.length;
    landing->arrived = true;
    if (op->engine->trace) gw_tracing_arrived(op, lane, &slot->frame, slot->begun, slot->arrived);
    unstash(peer, slot);
    return true;
}

uint64_t gw_flow_stashed(const gw_op *op, const gw_lane *lane) {
    const gw_peer *peer = &op->engine->peers[lane->peer];
    uint64_t count = 0;
    for (int i = 0; i < GW_EAGER_SLOTS; i++) {
        const gw_stashed *slot = &peer->stash[i];
        count += slot->used && slot->complete && slot->frame.comm == op->team->id && slot->frame.op == op->number &&
                 slot->frame.channel == lane->stream.channel;
    }
    return count;
}

/* An early message whose operation has just been started with another signature would wait for ever. */
static void check_stash(gw_op *op) {
    for (int r = 0; r < op->team->size; r++) {
        int job_rank = op->team->members[r];
        gw_peer *peer = &op->engine->peers[job_rank];
        for (int i = 0; peer->stash_used && i < GW_EAGER_SLOTS; i++) {
            gw_stashed *slot = &peer->stash[i];
            if (!slot->used || slot->frame.comm != op->team->id || slot->frame.op != op->number) continue;
            if (op->pair_peer >= 0 && op->pair_peer != job_rank) continue;
            gw_signature theirs = gw_signature_of_frame(&slot->frame);
            if (!gw_signature_equal(&op->signature, &theirs))
                gw_engine_frame_mismatch(op->engine, job_rank, &slot->frame, &op->signature);
        }
    }
}

/* Grants. */

static void remember_grant(gw_engine *engine, int from, const gw_frame *frame) {
    gw_peer *peer = &engine->peers[from];
    for (int i = 0; i < peer->early_count; i++) {
        gw_early_grant *early = &peer->early[i];
        if (early->comm == frame->comm && early->op == frame->op && early->channel == frame->channel) {
            if (frame->index > early->granted) early->granted = frame->index;
            return;
        }
    }
    if (peer->early_count == peer->early_room) {
        int room = peer->early_room ? 2 * peer->early_room : 8;
        gw_early_grant *grown = realloc(peer->early, (size_t)room * sizeof *grown);
        if (!grown) {
            gw_engine_report(engine, GW_MEMORY, -1, "out of memory for grants of rank %d", from);
            return;
        }
        peer->early = grown;
        peer->early_room = room;
    }
    peer->early[peer->early_count++] = (gw_early_grant){.comm = frame->comm, .channel = frame->channel, .op = frame->op,
                                                        .granted = frame->index,
                                                        .signature = gw_signature_of_frame(frame)};
}

static void claim_from(gw_op *op, int job_rank) {
    gw_peer *peer = &op->engine->peers[job_rank];
    for (int i = 0; i < peer->early_count;) {
        gw_early_grant *early = &peer->early[i];
        if (early->comm != op->team->id || early->op != op->number) {
            i++;
            continue;
        }
        gw_lane *lane = gw_op_lane(op, GW_FLOW_SEND, job_rank, early->channel);
        if (!gw_signature_equal(&early->signature, &op->signature)) {
            gw_engine_mismatch(op->engine, job_rank, early->comm, early->op, &early->signature, &op->signature);
        } else if (lane && early->granted > lane->granted) {
            lane->granted = early->granted;
        }
        peer->early[i] = peer->early[--peer->early_count];
    }
}

void gw_flow_claim_early(gw_op *op) {
    if (op->pair_peer >= 0) {
        claim_from(op, op->pair_peer);
    } else {
        for (int r = 0; r < op->team->size; r++) claim_from(op, op->team->members[r]);
    }
    check_stash(op);
}

static void fill_frame(gw_op *op, gw_lane *lane, gw_frame *frame, gw_frame_kind kind) {
    gw_peer *peer = &op->engine->peers[lane->peer];
    *frame = (gw_frame){.kind = (uint8_t)kind, .collective = op->signature.collective, .dtype = op->signature.dtype,
                        .redop = op->signature.redop, .builder = op->signature.builder, .root = op->signature.root,
                        .count = op->signature.count, .comm = op->team->id, .op = op->number,
                        .channel = lane->stream.channel, .credits = peer->owed};
    peer->owed = 0;
}

void gw_flow_grant(gw_op *op, gw_lane *lane) {
    const gw_peer *peer = &op->engine->peers[lane->peer];
    bool wanted = lane->large_to > lane->granted || peer->stash_used == GW_EAGER_SLOTS;
    bool starving = lane->granted <= lane->done || lane->posted == gw_op_allowed(op, lane);
    if (wanted && (starving || lane->posted - lane->granted >= GW_PIPELINE / 2)) gw_flow_grant_all(op, lane);
}

void gw_flow_grant_all(gw_op *op, gw_lane *lane) {
    gw_peer *peer = &op->engine->peers[lane->peer];
    if (lane->grant_queued || lane->granted >= lane->posted || peer->lost) return;
    lane->grant_packet = (gw_packet){.owner = op, .first = lane->granted};
    lane->granted = lane->posted;
    lane->grant_queued = true;
    fill_frame(op, lane, &lane->grant_packet.frame, GW_FRAME_GRANT);
    lane->grant_packet.frame.index = lane->granted;
    op->engine->counters.grants_sent++;
    peer->transport->ops->send(peer->transport, lane->peer, &lane->grant_packet);
}

bool gw_flow_send(gw_op *op, gw_lane *lane, const void *data, uint64_t bytes) {
    gw_peer *peer = &op->engine->peers[lane->peer];
    bool eager = lane->posted >= lane->granted, large = bytes > gw_flow_eager_bytes(op, lane->peer);
    if (eager && (large || peer->credits == 0)) {
        if (op->engine->trace) gw_tracing_refused(op, lane);
        return false;
    }
    if (eager) peer->credits--;
    int slot = (int)(lane->posted % GW_PIPELINE);
    gw_packet *packet = &lane->packet[slot];
    *packet = (gw_packet){.data = data, .owner = op};
    fill_frame(op, lane, &packet->frame, GW_FRAME_DATA);
    packet->frame.index = lane->posted;
    packet->frame.length = bytes;
    if (eager) packet->frame.flags |= GW_FRAME_EAGER;
    /* A few bytes that are all of a message between two: nothing of it can be overtaken. */
    bool signal = op->pair_peer >= 0 && lane->stream.steps == 1 && bytes <= SIGNAL_BYTES;
    packet->urgency = signal ? GW_URGENT_SIGNAL : op->spec.urgency;
    if (large) { /* credits are not to wait behind a large payload */
        peer->owed = packet->frame.credits;
        packet->frame.credits = 0;
    }
    lane->left[slot] = false;
    lane->posted++;
    op->engine->counters.messages_sent++;
    op->engine->counters.bytes_sent += bytes;
    if (op->engine->trace) gw_tracing_handed(op, lane, slot);
    peer->transport->ops->send(peer->transport, lane->peer, packet);
    return true;
}

/* Credits go back with other frames, or on their own when the sender may be running out of them. */
static void return_credits(gw_engine *engine, int rank) {
    gw_peer *peer = &engine->peers[rank];
    bool needed = peer->owed >= GW_EAGER_SLOTS / 2 || (peer->owed && peer->owed + peer->stash_used >= GW_EAGER_SLOTS);
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

/* The sink: what transports tell. */

/* The landing of a DATA frame whose step has been posted, or NULL. Reports a frame that fits no posted step. */
static gw_landing *posted_landing(gw_engine *engine, gw_op *op, int peer, const gw_frame *frame, gw_lane **found) {
    gw_lane *lane = gw_op_lane(op, GW_FLOW_RECV, peer, frame->channel);
    *found = lane;
    if (!lane || frame->index >= lane->stream.steps || frame->index < lane->done) {
        gw_engine_report(engine, GW_PROTOCOL, peer,
                         "rank %d on %s sent message %" PRIu64 " on channel %u of operation #%" PRIu64
                         ", which expects no such message: do all ranks run the same version of gradwire?",
                         peer, host(engine, peer), frame->index, frame->channel, frame->op & ~GW_PAIR_OP);
        return NULL;
    }
    if (frame->index >= lane->posted) return NULL;
    gw_landing *landing = &lane->land[frame->index % GW_PIPELINE];
    bool fits = op->spec.out_lengths ? frame->length <= landing->bytes : frame->length == landing->bytes;
    if (!fits || landing->arrived) {
        gw_engine_report(engine, GW_PROTOCOL, peer,
                         "message %" PRIu64 " of operation #%" PRIu64 " from rank %d on %s has %" PRIu64
                         " bytes, %" PRIu64 " were expected: do all ranks run the same version of gradwire?",
                         frame->index, frame->op & ~GW_PAIR_OP, peer, host(engine, peer), frame->length,
                         landing->bytes);
        return NULL;
    }
    return landing;
}

static void not_granted(gw_engine *engine, int peer, const gw_frame *frame) {
    gw_engine_report(engine, GW_PROTOCOL, peer, "rank %d on %s sent %" PRIu64 " bytes that were not granted", peer,
                     host(engine, peer), frame->length);
}

static void over_already(gw_engine *engine, int peer, const gw_frame *frame) {
    gw_engine_report(engine, GW_PROTOCOL, peer, "rank %d on %s sent data for operation #%" PRIu64 ", which is over",
                     peer, host(engine, peer), frame->op & ~GW_PAIR_OP);
}

/* Two connections bring the same message: whichever came second is refused, for only one may write to a place. Reports
 * it. landing: NULL, where no step for it has been posted. */
static bool is_coming(gw_engine *engine, int peer, const gw_frame *frame, const gw_landing *landing) {
    bool early = stashed(&engine->peers[peer], frame->comm, frame->op, frame->channel, frame->index) != NULL;
    if (!early && !(landing && landing->taken)) return false;
    gw_engine_report(engine, GW_PROTOCOL, peer,
                     "rank %d on %s sent message %" PRIu64 " of operation #%" PRIu64 " twice, by two connections: do "
                     "all ranks run the same version of gradwire?",
                     peer, host(engine, peer), frame->index, frame->op & ~GW_PAIR_OP);
    return true;
}

static void *sink_landing(void *ctx, int peer, const gw_frame *frame) {
    gw_engine *engine = ctx;
    gw_op *op = gw_engine_find(engine, peer, frame);
    if (engine->halted) return NULL;
    gw_lane *lane;
    gw_landing *landing = op ? posted_landing(engine, op, peer, frame, &lane) : NULL;
    if (engine->halted || is_coming(engine, peer, frame, landing)) return NULL;
    if (landing) {
        landing->taken = true;
        landing->begun = engine->trace ? gw_trace_now(engine->trace) : 0;
        return landing->at;
    }
    if (!op && is_over(engine, peer, frame)) {
        over_already(engine, peer, frame);
        return NULL;
    }
    gw_stashed *slot = stash_slot(engine, peer, frame);
    if (!slot) not_granted(engine, peer, frame);
    return slot ? slot->bytes : NULL;
}

/* Added up where it lies, if the step's turn has come. */
static bool sink_piece(void *ctx, int peer, const gw_frame *frame, uint64_t at, const void *data, uint64_t bytes) {
    gw_engine *engine = ctx;
    if (engine->halted) return at > 0;
    gw_op *op = gw_engine_find(engine, peer, frame);
    gw_lane *lane = NULL;
    gw_landing *landing = op && !engine->halted ? posted_landing(engine, op, peer, frame, &lane) : NULL;
    if (engine->halted || !landing) return at > 0;
    bool begins = at == 0 && (bytes == 0 || !landing->acted);
    if (begins && is_coming(engine, peer, frame, landing)) return false;
    if (at == 0) landing->begun = engine->trace ? gw_trace_now(engine->trace) : 0;
    landing->taken |= gw_op_piece(op, lane, frame->index, at, data, bytes);
    return landing->taken;
}

/* This payload has come into the landing that was promised to it. */
static bool is_own(const gw_landing *landing, const gw_frame *frame, const void *data) {
    if (!landing || !landing->taken) return false;
    return data == landing->at || (landing->acted && !data && frame->length);
}

/* The stash place that sink_landing gave for this payload, if it did. */
static gw_stashed *stash_holding(gw_peer *peer, const void *data) {
    for (int i = 0; data && peer->stash_used && i < GW_EAGER_SLOTS; i++)
        if (peer->stash[i].used && peer->stash[i].bytes == data) return &peer->stash[i];
    return NULL;
}

static void keep_early(gw_engine *engine, gw_stashed *slot) {
    slot->complete = true;
    slot->arrived = engine->trace ? gw_trace_now(engine->trace) : 0;
    engine->counters.stashed++;
    /* The operation may have been started, or its step posted, in the meantime; and a full stash calls for grants. */
    mark_all(engine);
}

static void data_arrived(gw_engine *engine, int peer, const gw_frame *frame, const void *data) {
    gw_peer *from = &engine->peers[peer];
    gw_stashed *slot = stash_holding(from, data);
    if (slot) {
        keep_early(engine, slot);
        return;
    }
    gw_op *op = gw_engine_find(engine, peer, frame);
    if (engine->halted) return;
    gw_lane *lane = NULL;
    gw_landing *landing = op ? posted_landing(engine, op, peer, frame, &lane) : NULL;
    if (engine->halted || (!is_own(landing, frame, data) && is_coming(engine, peer, frame, landing))) return;
    if (landing) {
        if (frame->flags & GW_FRAME_EAGER) from->owed++;
        if (engine->trace) gw_tracing_arrived(op, lane, frame, landing->begun, 0);
        gw_op_arrived(op, lane, frame->index, data, frame->length);
        return;
    }
    if (!op && is_over(engine, peer, frame)) {
        over_already(engine, peer, frame);
        return;
    }
    slot = stash_slot(engine, peer, frame);
    if (!slot) {
        not_granted(engine, peer, frame);
        return;
    }
    if (frame->length) gw_copy(slot->bytes, data, frame->length);
    keep_early(engine, slot);
}

static void grant_arrived(gw_engine *engine, int peer, const gw_frame *frame) {
    gw_op *op = gw_engine_find(engine, peer, frame);
    if (engine->halted) return;
    if (!op) {
        gw_team *team = find_team(engine, frame->comm);
        bool over = (frame->op & GW_PAIR_OP) ? gw_team_pair_over(team, peer, frame->op) : is_over(engine, peer, frame);
        if (!over) remember_grant(engine, peer, frame);
        return;
    }
    gw_lane *lane = gw_op_lane(op, GW_FLOW_SEND, peer, frame->channel);
    if (lane && frame->index > lane->granted) {
        lane->granted = frame->index;
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
    }
    if (ticket) from->transport->ops->release(from->transport, peer, ticket);
}

static void *sink_granted(void *ctx, int peer, const gw_packet *grant, uint64_t index, uint64_t *bytes) {
    gw_engine *engine = ctx;
    gw_op *op = grant->owner;
    const gw_lane *lane = &op->lanes[(size_t)((const uint8_t *)grant - (uint8_t *)op->lanes) / sizeof *lane];
    const gw_landing *landing = &lane->land[index % GW_PIPELINE];
    if (index < lane->done || index >= lane->posted || landing->arrived) return NULL;
    if (stashed(&engine->peers[peer], op->team->id, op->number, lane->stream.channel, index)) return NULL;
    *bytes = landing->bytes;
    return landing->at;
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
    return (gw_sink){.ctx = engine, .landing = sink_landing, .piece = sink_piece,
                     .arrived = sink_arrived, .granted = sink_granted, .sent = sink_sent, .lost = sink_lost};
}

void gw_flow_discard(gw_engine *engine) {
    for (int r = 0; r < engine->config.world; r++) {
        gw_peer *peer = &engine->peers[r];
        for (int i = 0; i < GW_EAGER_SLOTS; i++) peer->stash[i].used = false;
        peer->stash_used = 0;
        peer->early_count = 0;
        peer->credits = GW_EAGER_SLOTS;
        peer->owed = 0;
        peer->credit_queued = false;
        peer->lost = peer->died = false;
    }
}
