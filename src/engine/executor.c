/* executor.c - runs the plan of an operation: posts receives, sends, reduces and copies as soon as an action's waits
 * hold.
 *
 * State: a few counters for each stream of the plan, whatever the size of the data. */
#include "engine/engine_internal.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/copy.h"
#include "base/dtype.h"
#include "engine/engine_trace.h"
#include "shm/shm_coll.h"

void gw_op_mark(gw_op *op) { op->dirty = true; }

gw_stream_state *gw_op_stream(gw_op *op, gw_stream_kind kind, int peer, uint32_t channel) {
    for (uint32_t i = 0; i < op->plan.streams; i++) {
        gw_stream_state *stream = &op->streams[i];
        if (stream->desc.kind == kind && stream->peer == peer && stream->desc.channel == channel) return stream;
    }
    return NULL;
}

bool gw_op_holds(const gw_op *op, const gw_waits waits[GW_ACTION_WAITS]) {
    for (int w = 0; w < GW_ACTION_WAITS; w++)
        for (uint32_t s = 0; s < waits[w].streams; s++)
            if (op->streams[waits[w].first + s].done < waits[w].actions) return false;
    return true;
}

/* A buffer that this rank does not need may be NULL, to which C adds nothing, not even 0. */
static uint8_t *advanced(const void *base, size_t bytes) { return (uint8_t *)((uintptr_t)base + bytes); }

static uint8_t *address(const gw_op *op, const gw_slot *slot) {
    switch (slot->space) {
    case GW_SPACE_IN: return advanced(op->spec.in, slot->offset * op->raw);
    case GW_SPACE_OUT: return advanced(op->spec.out, slot->offset * op->raw);
    case GW_SPACE_WORK: return op->work + slot->offset * op->wide;
    case GW_SPACE_NONE: break;
    }
    return NULL;
}

/* Address of an element of a slot. A slot in WORK has room for accumulators; raw elements are packed at its start. */
static uint8_t *element(const gw_op *op, const gw_slot *slot, bool wide, size_t at) {
    return advanced(address(op, slot), at * (slot->space == GW_SPACE_WORK && wide ? op->wide : op->raw));
}

/* A raw message that is widened in place is received at the end of its slot (base/reduce.h). */
static uint8_t *recv_address(const gw_op *op, const gw_action *action, uint64_t bytes) {
    uint8_t *at = address(op, &action->land);
    bool widened = action->kind == GW_ACTION_RECV_REDUCE && action->land.space == GW_SPACE_WORK && !action->wide;
    return widened ? at + action->land.count * op->wide - bytes : at;
}

/* For buffers whose parts vary in length: the length of the part that holds this slot. *within: the slot's offset in
 * that part. */
static uint64_t *part_length(const gw_op *op, const gw_slot *slot, size_t *within) {
    bool gathers = op->spec.collective == GW_COLL_ALLGATHER;
    size_t room = op->spec.count, part = room ? slot->offset / room : 0;
    *within = room ? slot->offset % room : 0;
    if (slot->space == GW_SPACE_IN && gathers) return &op->spec.out_lengths[op->team->rank];
    if (slot->space == GW_SPACE_IN) return (uint64_t *)(uintptr_t)&op->spec.in_lengths[part];
    return &op->spec.out_lengths[part];
}

/* Bytes of a slot that are in use. */
static uint64_t slot_bytes(const gw_op *op, const gw_slot *slot) {
    uint64_t bytes = (uint64_t)slot->count * op->raw;
    if (!op->spec.out_lengths) return bytes;
    size_t within;
    uint64_t length = *part_length(op, slot, &within);
    return length <= within ? 0 : length - within < bytes ? length - within : bytes;
}

static uint64_t message_bytes(const gw_op *op, const gw_action *action) {
    if (action->kind == GW_ACTION_SEND)
        return action->wide ? (uint64_t)action->src.count * op->wide : slot_bytes(op, &action->src);
    return (uint64_t)action->land.count * (action->wide ? op->wide : op->raw);
}

void gw_op_progress(gw_op *op) {
    op->progress_at = op->engine->now;
    if (op->warned) {
        op->warned = false;
        op->engine->config.events.waiting(op->engine->config.events.ctx, NULL, 0, "", 0);
    }
}

static void complete(gw_op *op, gw_stream_state *stream) {
    stream->done++;
    gw_op_progress(op);
}

/* Receives. */

static void merge_received(gw_op *op, const gw_action *action, const void *data) {
    size_t bytes = action->dst.count * op->raw;
    const uint8_t *src = address(op, &action->src);
    uint8_t *dst = address(op, &action->dst);
    if (dst != src && dst != data) gw_copy(dst, data, bytes);
    op->spec.merge(op->spec.merge_ctx, dst, dst == src ? data : src, bytes);
}

/* Reduces the action's elements at .. at+count-1 with the received ones at data. */
static void reduce_received(gw_op *op, const gw_action *action, size_t at, size_t count, const void *data) {
    const uint8_t *src = element(op, &action->src, action->src_wide, at);
    uint8_t *dst = element(op, &action->dst, !action->finish, at);
    gw_time begun = op->engine->trace ? gw_trace_now(op->engine->trace) : 0;
    /* A raw message that is widened in its own slot must be the second operand (base/reduce.h). */
    bool widened = action->land.space == GW_SPACE_WORK && !action->wide && op->raw != op->wide;
    if (op->spec.merge) merge_received(op, action, data);
    else if (action->landed_first && !widened)
        gw_reduce_pair(op->reduction, dst, data, action->wide, src, action->src_wide, count, action->finish);
    else gw_reduce_pair(op->reduction, dst, src, action->src_wide, data, action->wide, count, action->finish);
    if (op->engine->trace) gw_engine_trace_reduced(op, count * op->raw, begun);
}

/* Reduces or copies a whole message. bytes: its length. */
static void act_on(gw_op *op, const gw_action *action, const void *data, uint64_t bytes) {
    uint8_t *dst = address(op, &action->dst);
    if (action->kind == GW_ACTION_RECV_REDUCE) reduce_received(op, action, 0, action->dst.count, data);
    else if (data != dst && bytes) gw_copy(dst, data, bytes);
    size_t within;
    if (op->spec.out_lengths && action->dst.space == GW_SPACE_OUT) *part_length(op, &action->dst, &within) += bytes;
}

void gw_op_post_receives(gw_op *op, gw_stream_state *stream) {
    uint32_t number = (uint32_t)(stream - op->streams);
    while (stream->posted < gw_op_allowed(op, stream) && stream->posted - stream->done < GW_PIPELINE) {
        gw_action action;
        gw_plan_action(&op->plan, number, stream->posted, &action);
        if (!gw_op_holds(op, action.free)) break;
        uint64_t bytes = message_bytes(op, &action);
        stream->recvs[stream->posted % GW_PIPELINE] =
            (gw_posted_recv){.buffer = recv_address(op, &action, bytes), .bytes = bytes};
        stream->posted++;
        if (bytes > gw_flow_eager_bytes(op, stream->peer)) stream->large_to = stream->posted;
    }
}

static bool post_receives(gw_op *op, uint32_t number) {
    gw_stream_state *stream = &op->streams[number];
    uint64_t before = stream->posted;
    gw_op_post_receives(op, stream);
    gw_flow_grant(op, stream);
    return stream->posted > before;
}

static bool act_on_receives(gw_op *op, uint32_t number) {
    gw_stream_state *stream = &op->streams[number];
    bool moved = false;
    while (stream->done < stream->posted) {
        gw_posted_recv *recv = &stream->recvs[stream->done % GW_PIPELINE];
        if (!recv->arrived && !gw_flow_take_unexpected(op, stream, stream->done)) break;
        gw_action action;
        gw_plan_action(&op->plan, number, stream->done, &action);
        if (!gw_op_holds(op, action.ready)) break;
        if (!recv->acted) act_on(op, &action, recv->buffer, recv->bytes);
        complete(op, stream);
        moved = true;
    }
    return moved;
}

/* True if all messages before this one are done, or are reduced or copied already, at least in part. */
static bool is_next(const gw_stream_state *stream, uint64_t index) {
    while (index > stream->done && stream->recvs[(index - 1) % GW_PIPELINE].acted) index--;
    return index == stream->done;
}

bool gw_op_reduce_part(gw_op *op, gw_stream_state *stream, uint64_t index, uint64_t at, const void *data,
                       uint64_t bytes) {
    gw_action action;
    gw_plan_action(&op->plan, (uint32_t)(stream - op->streams), index, &action);
    if (action.kind != GW_ACTION_RECV_REDUCE || op->spec.merge) return false;
    if (!is_next(stream, index) || !gw_op_holds(op, action.ready)) return false;
    size_t unit = action.wide ? op->wide : op->raw;
    stream->recvs[index % GW_PIPELINE].acted = true;
    if (bytes) reduce_received(op, &action, at / unit, bytes / unit, data);
    return true;
}

/* data is a view of the sender's memory, or the receive buffer itself. A view is reduced at once if it is the action's
 * turn; otherwise it is copied to the receive buffer. If gw_op_reduce_part has used the data, nothing is left to do. */
void gw_op_arrived(gw_op *op, gw_stream_state *stream, uint64_t index, const void *data, uint64_t bytes) {
    gw_posted_recv *recv = &stream->recvs[index % GW_PIPELINE];
    recv->bytes = bytes;
    recv->arrived = true;
    gw_op_mark(op);
    if (recv->acted || data == recv->buffer || recv->bytes == 0) return;
    gw_action action;
    gw_plan_action(&op->plan, (uint32_t)(stream - op->streams), index, &action);
    if (index == stream->done && gw_op_holds(op, action.ready)) {
        act_on(op, &action, data, recv->bytes);
        recv->acted = true;
    } else {
        gw_copy(recv->buffer, data, recv->bytes);
    }
}

/* Sends. */

static bool post_sends(gw_op *op, uint32_t number) {
    gw_stream_state *stream = &op->streams[number];
    bool moved = false;
    while (stream->posted < stream->desc.actions && stream->posted - stream->done < GW_PIPELINE) {
        gw_action action;
        gw_plan_action(&op->plan, number, stream->posted, &action);
        if (!gw_op_holds(op, action.ready)) break;
        if (!gw_flow_send(op, stream, address(op, &action.src), message_bytes(op, &action))) break;
        moved = true;
    }
    return moved;
}

void gw_op_sent(gw_op *op, gw_packet *packet) {
    gw_stream_state *stream = &op->streams[(size_t)((uint8_t *)packet - (uint8_t *)op->streams) / sizeof *stream];
    gw_op_mark(op);
    if (packet == &stream->signal_packet) {
        stream->signal_queued = false;
        return;
    }
    if (op->engine->trace) gw_engine_trace_sent(op, stream, (int)(packet - stream->packet));
    stream->left[packet - stream->packet] = true;
    while (stream->done < stream->posted && stream->left[stream->done % GW_PIPELINE]) {
        stream->left[stream->done % GW_PIPELINE] = false;
        complete(op, stream);
    }
}

/* Local work. */

static void copy(gw_op *op, const gw_action *action) {
    uint8_t *dst = address(op, &action->dst);
    const uint8_t *src = address(op, &action->src);
    uint64_t bytes = slot_bytes(op, &action->src);
    bool apart = (uintptr_t)dst - (uintptr_t)src >= bytes && (uintptr_t)src - (uintptr_t)dst >= bytes;
    if (apart && bytes) gw_copy(dst, src, bytes);
    else if (dst != src) memmove(dst, src, bytes);
}

/* In rank order, so that every rank gets the same bits. The payloads of other ranks are in WORK, where the sum is
 * built: the own one may be dst. */
static void fold_by_merge(gw_op *op, const gw_action *action, const void *const *sources) {
    uint8_t *dst = address(op, &action->dst), *sum = op->team->rank == 0 ? dst : (uint8_t *)(uintptr_t)sources[0];
    size_t bytes = action->dst.count * op->raw;
    if (sum != sources[0]) memmove(sum, sources[0], bytes);
    for (int r = 1; r < op->team->size; r++) op->spec.merge(op->spec.merge_ctx, sum, sources[r], bytes);
    if (sum != dst) memcpy(dst, sum, bytes);
}

static void fold(gw_op *op, const gw_action *action) {
    if (op->team->size == 1 && !op->spec.merge && gw_reduce_is_copy(op->reduction)) {
        copy(op, action);
        return;
    }
    const void **sources = op->engine->sources;
    size_t base = action->fold_base;
    gw_time begun = op->engine->trace ? gw_trace_now(op->engine->trace) : 0;
    for (int r = 0; r < op->team->size; r++) {
        if (r == op->team->rank) {
            sources[r] = address(op, &action->src);
        } else {
            sources[r] = op->work + base * op->wide;
            base += action->fold_stride;
        }
    }
    if (op->spec.merge) fold_by_merge(op, action, sources);
    else gw_reduce_many(op->reduction, address(op, &action->dst), sources, op->team->size, action->dst.count);
    if (op->engine->trace)
        gw_engine_trace_reduced(op, action->dst.count * op->raw * ((size_t)op->team->size - 1), begun);
}

/* Shm tasks are matched by their order, so every rank starts them in the order of the operations. */
static bool coll_turn(const gw_op *op) {
    for (const gw_op *earlier = op->engine->active; earlier != op; earlier = earlier->next)
        if (earlier->team == op->team && earlier->coll_started < earlier->coll_actions) return false;
    return gw_shm_coll_can_start(op->team->coll);
}

static void start_coll(gw_op *op, gw_stream_state *stream, const gw_action *action) {
    gw_shm_coll_op task = gw_op_coll_task(action, &op->signature, op->reduction);
    task.number = op->number;
    gw_coll_shift shift = gw_op_coll_shift(op->team, action, op->counts);
    task.in = gw_shifted(address(op, &action->src), shift.in * op->raw);
    task.out = gw_shifted(address(op, &action->dst), shift.out * (action->dst_wide ? op->wide : op->raw));
    if (action->by_counts) task.counts = op->counts;
    gw_shm_coll_start(op->team->coll, &task);
    if (op->engine->trace) stream->coll_at = gw_trace_now(op->engine->trace);
    gw_op_coll_begun(op, stream);
}

/* True when the shm collective has finished this action. */
static bool run_coll(gw_op *op, gw_stream_state *stream, const gw_action *action) {
    gw_team *team = op->team;
    if (!stream->coll_running) {
        if (!coll_turn(op)) return false;
        start_coll(op, stream, action);
    }
    uint64_t completed = 0;
    bool moved = false;
    gw_error error = {.rank = -1};
    if (gw_shm_coll_poll(team->coll, &completed, &moved, &error) != GW_OK) {
        gw_op_report_coll(op, &error);
        return false;
    }
    op->engine->coll_moved |= moved;
    if (moved) op->progress_at = op->engine->now;
    stream->coll_running = completed < stream->coll_ticket;
    if (op->engine->trace && !stream->coll_running) gw_engine_trace_coll(op, stream, action);
    return !stream->coll_running;
}

static bool is_native(const gw_op *op) { return op->plan.builder == &gw_plan_transport_allreduce; }

/* The library matches calls by their order: make them in the order of the operations. */
static bool native_turn(const gw_op *op) {
    for (const gw_op *earlier = op->engine->active; earlier != op; earlier = earlier->next)
        if (earlier->team == op->team && earlier->native_due) return false;
    return true;
}

/* True when the library has finished this action. */
static bool run_native(gw_op *op, gw_stream_state *stream, const gw_action *action) {
    gw_transport *transport = op->team->native;
    const gw_native *native = transport->ops->native;
    gw_error error = {.rank = -1};
    if (!stream->native) {
        if (!native_turn(op)) return false;
        op->native_due--;
        stream->native = native->start(transport, address(op, &action->src), address(op, &action->dst),
                                       action->dst.count, op->spec.dtype, op->spec.redop, &error);
    }
    bool done = stream->native && native->done(transport, stream->native, &error);
    if (done) stream->native = NULL;
    if (error.status) gw_engine_report(op->engine, error.status, -1, "%s", error.text);
    return done && !error.status;
}

static bool run_local(gw_op *op, uint32_t number) {
    gw_stream_state *stream = &op->streams[number];
    bool moved = false;
    while (stream->done < stream->desc.actions) {
        gw_action action;
        gw_plan_action(&op->plan, number, stream->done, &action);
        if (!gw_op_holds(op, action.ready)) break;
        if (action.kind == GW_ACTION_COPY) copy(op, &action);
        else if (action.kind == GW_ACTION_FOLD) fold(op, &action);
        else if (!(action.kind == GW_ACTION_NATIVE ? run_native : run_coll)(op, stream, &action)) break;
        complete(op, stream);
        moved = true;
    }
    return moved;
}

static bool advance_stream(gw_op *op, uint32_t stream) {
    switch (op->streams[stream].desc.kind) {
    case GW_STREAM_RECV: {
        bool posted = post_receives(op, stream);
        bool acted = act_on_receives(op, stream);
        return posted || acted;
    }
    case GW_STREAM_SEND: return post_sends(op, stream);
    case GW_STREAM_LOCAL: return run_local(op, stream);
    }
    return false;
}

static bool on_coll(const gw_op *op) { return op->coll_actions > 0; }

bool gw_op_needs_poll(const gw_op *op) { return op->dirty || is_native(op) || on_coll(op); }

/* True if all remaining messages of this receive stream are here. */
static bool all_here(const gw_op *op, const gw_stream_state *stream) {
    uint64_t here = gw_flow_unexpected(op, stream);
    for (uint64_t i = stream->done; i < stream->posted; i++) here += stream->recvs[i % GW_PIPELINE].arrived;
    return here == stream->desc.actions - stream->done;
}

/* A peer whose link is lost and which this operation still needs; -1: none. */
static int needs_lost_peer(const gw_op *op) {
    if (gw_op_unmatched(op)) return gw_pair_lost_source(op);
    for (uint32_t s = 0; s < op->plan.streams; s++) {
        const gw_stream_state *stream = &op->streams[s];
        if (stream->peer < 0 || !op->engine->peers[stream->peer].lost || stream->done == stream->desc.actions) continue;
        if (stream->desc.kind == GW_STREAM_RECV && all_here(op, stream)) continue;
        return stream->peer;
    }
    /* A rank of this host that has left this operation's last shm task has done its part. */
    for (int r = 0; on_coll(op) && r < op->team->size; r++) {
        int rank = op->team->members[r];
        if (op->engine->peers[rank].lost && gw_shm_coll_finished(op->team->coll, rank) < op->coll_due) return rank;
    }
    for (int r = 0; is_native(op) && r < op->team->size; r++) /* a rank that left in order has done its part */
        if (op->engine->peers[op->team->members[r]].died) return op->team->members[r];
    return -1;
}

static void finish(gw_op *op, gw_status status) {
    gw_engine *engine = op->engine;
    gw_op **at = &engine->active;
    while (*at != op) at = &(*at)->next;
    /* The next operation may have waited for this one: its deadline starts now. */
    if (at == &engine->active && op->next && op->next->progress_at < engine->now) op->next->progress_at = engine->now;
    *at = op->next;
    op->next = NULL;
    op->active = false;
    op->done = true;
    op->status = status;
    if (engine->trace) gw_engine_trace_ended(op);
    engine->pending--;
    if (op->spec.source) *op->spec.source = op->spec.root;
    if (op->pair_peer < 0) op->team->history[op->number % GW_HISTORY] = op->signature;
}

static bool is_complete(const gw_op *op) {
    for (uint32_t s = 0; s < op->plan.streams; s++)
        if (op->streams[s].done < op->streams[s].desc.actions || op->streams[s].signal_queued) return false;
    return true;
}

bool gw_op_advance(gw_op *op) {
    bool any = false, moved = !gw_op_unmatched(op);
    op->dirty = false;
    while (moved && !op->engine->halted) {
        op->dirty = false;
        moved = false;
        /* Post receives first: a grant queued behind data to the same rank would delay that rank's messages. */
        for (uint32_t s = 0; s < op->plan.streams; s++)
            if (op->streams[s].desc.kind == GW_STREAM_RECV) moved |= post_receives(op, s);
        for (uint32_t s = 0; s < op->plan.streams; s++) moved |= advance_stream(op, s);
        any |= moved;
    }
    if (op->engine->halted) return any;
    if (gw_op_unmatched(op)) gw_pair_offer(op);
    if (is_complete(op)) {
        finish(op, GW_OK);
        return true;
    }
    int lost = needs_lost_peer(op);
    if (lost >= 0) {
        char text[GW_TEXT_BYTES];
        const gw_peer *peer = &op->engine->peers[lost];
        const gw_engine_config *config = &op->engine->config;
        gw_engine_report(op->engine, peer->lost_status, lost, "rank %d on %s lost rank %d on %s during %s: %s",
                         config->rank, config->host_name(config->events.ctx, config->rank), lost,
                         config->host_name(config->events.ctx, lost), gw_op_text(op, text), peer->why_lost);
    }
    return any;
}
