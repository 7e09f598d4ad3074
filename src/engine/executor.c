/* executor.c - runs the plan of an operation: posts landings, sends, reduces, copies, as soon as a step's waits hold.
 *
 * State is a few counters for each stream of the plan, whatever the size of the data. */
#include "engine/engine_internal.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "engine/tracing.h"
#include "transport/board.h"
#include "transport/copy.h"

void gw_op_mark(gw_op *op) { op->dirty = true; }

gw_lane *gw_op_lane(gw_op *op, gw_flow flow, int peer, uint32_t channel) {
    for (uint32_t i = 0; i < op->plan.streams; i++) {
        gw_lane *lane = &op->lanes[i];
        if (lane->stream.flow == flow && lane->peer == peer && lane->stream.channel == channel) return lane;
    }
    return NULL;
}

bool gw_op_holds(const gw_op *op, const gw_waits waits[GW_STEP_WAITS]) {
    for (int w = 0; w < GW_STEP_WAITS; w++)
        for (uint32_t s = 0; s < waits[w].streams; s++)
            if (op->lanes[waits[w].first + s].done < waits[w].steps) return false;
    return true;
}

static uint8_t *address(const gw_op *op, const gw_slot *slot) {
    switch (slot->space) {
    case GW_SPACE_IN: return (uint8_t *)(uintptr_t)op->spec.in + slot->offset * op->raw;
    case GW_SPACE_OUT: return (uint8_t *)op->spec.out + slot->offset * op->raw;
    case GW_SPACE_WORK: return op->work + slot->offset * op->wide;
    case GW_SPACE_NONE: break;
    }
    return NULL;
}

/* Where an element of a slot lies. In WORK a slot has room for accumulators, but what is raw there lies close together
 * from the slot's beginning on. */
static uint8_t *element(const gw_op *op, const gw_slot *slot, bool wide, size_t at) {
    return address(op, slot) + at * (slot->space == GW_SPACE_WORK && wide ? op->wide : op->raw);
}

/* A raw message that is going to be widened in its landing slot is put at the slot's end (base/reduce.h). */
static uint8_t *landing_address(const gw_op *op, const gw_action *step, uint64_t bytes) {
    uint8_t *at = address(op, &step->land);
    bool widened = step->kind == GW_STEP_RECV_REDUCE && step->land.space == GW_SPACE_WORK && !step->wide;
    return widened ? at + step->land.count * op->wide - bytes : at;
}

/* Which part of a buffer whose parts vary in length a slot lies in, and how far from its beginning. */
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

static uint64_t step_bytes(const gw_op *op, const gw_action *step) {
    if (step->kind == GW_STEP_SEND)
        return step->wide ? (uint64_t)step->src.count * op->wide : slot_bytes(op, &step->src);
    return (uint64_t)step->land.count * (step->wide ? op->wide : op->raw);
}

static void complete(gw_op *op, gw_lane *lane) {
    lane->done++;
    op->progress_at = op->engine->now;
    if (op->warned) {
        op->warned = false;
        op->engine->config.events.waiting(op->engine->config.events.ctx, NULL, 0, "");
    }
}

/* Receives. */

static void merge_landed(gw_op *op, const gw_action *step, const void *data) {
    size_t bytes = step->dst.count * op->raw;
    const uint8_t *src = address(op, &step->src);
    uint8_t *dst = address(op, &step->dst);
    if (dst != src && dst != data) gw_copy(dst, data, bytes);
    op->spec.merge(op->spec.merge_ctx, dst, dst == src ? data : src, bytes);
}

/* The step's elements from number `at` on, as many as have come; they are at data. */
static void reduce_landed(gw_op *op, const gw_action *step, size_t at, size_t count, const void *data) {
    const uint8_t *src = element(op, &step->src, step->src_wide, at);
    uint8_t *dst = element(op, &step->dst, !step->finish, at);
    gw_time begun = op->engine->trace ? gw_trace_now(op->engine->trace) : 0;
    /* A raw message that is widened in its own slot must be the second operand (base/reduce.h). */
    bool widened = step->land.space == GW_SPACE_WORK && !step->wide && op->raw != op->wide;
    if (op->spec.merge) merge_landed(op, step, data);
    else if (step->landed_first && !widened)
        gw_reduce_pair(op->reduction, dst, data, step->wide, src, step->src_wide, count, step->finish);
    else gw_reduce_pair(op->reduction, dst, src, step->src_wide, data, step->wide, count, step->finish);
    if (op->engine->trace) gw_tracing_reduced(op, count * op->raw, begun);
}

/* bytes: what came. */
static void act_on(gw_op *op, const gw_action *step, const void *data, uint64_t bytes) {
    uint8_t *dst = address(op, &step->dst);
    if (step->kind == GW_STEP_RECV_REDUCE) reduce_landed(op, step, 0, step->dst.count, data);
    else if (data != dst && bytes) gw_copy(dst, data, bytes);
    size_t within;
    if (op->spec.out_lengths && step->dst.space == GW_SPACE_OUT) *part_length(op, &step->dst, &within) += bytes;
}

static bool post_receives(gw_op *op, uint32_t stream) {
    gw_lane *lane = &op->lanes[stream];
    bool moved = false;
    while (lane->posted < gw_op_allowed(op, lane) && lane->posted - lane->done < GW_PIPELINE) {
        gw_action step;
        gw_plan_step(&op->plan, stream, lane->posted, &step);
        if (!gw_op_holds(op, step.free)) break;
        uint64_t bytes = step_bytes(op, &step);
        lane->land[lane->posted % GW_PIPELINE] =
            (gw_landing){.at = landing_address(op, &step, bytes), .bytes = bytes};
        lane->posted++;
        if (bytes > gw_flow_eager_bytes(op, lane->peer)) lane->large_to = lane->posted;
        moved = true;
    }
    gw_flow_grant(op, lane);
    return moved;
}

static bool act_on_receives(gw_op *op, uint32_t stream) {
    gw_lane *lane = &op->lanes[stream];
    bool moved = false;
    while (lane->done < lane->posted) {
        gw_landing *landing = &lane->land[lane->done % GW_PIPELINE];
        if (!landing->arrived && !gw_flow_unstash(op, lane, lane->done)) break;
        gw_action step;
        gw_plan_step(&op->plan, stream, lane->done, &step);
        if (!gw_op_holds(op, step.ready)) break;
        if (!landing->acted) act_on(op, &step, landing->at, landing->bytes);
        complete(op, lane);
        moved = true;
    }
    return moved;
}

/* Nothing comes before this message but what has been used already, or is being. */
static bool is_next(const gw_lane *lane, uint64_t index) {
    while (index > lane->done && lane->land[(index - 1) % GW_PIPELINE].acted) index--;
    return index == lane->done;
}

bool gw_op_piece(gw_op *op, gw_lane *lane, uint64_t index, uint64_t at, const void *data, uint64_t bytes) {
    gw_action step;
    gw_plan_step(&op->plan, (uint32_t)(lane - op->lanes), index, &step);
    if (step.kind != GW_STEP_RECV_REDUCE || op->spec.merge || !is_next(lane, index) || !gw_op_holds(op, step.ready))
        return false;
    size_t unit = step.wide ? op->wide : op->raw;
    lane->land[index % GW_PIPELINE].acted = true;
    if (bytes) reduce_landed(op, &step, at / unit, bytes / unit, data);
    return true;
}

/* Called with a view of the sender's memory, or with the landing itself: reduces straight from the view if the step's
 * turn has come, else keeps the data in its landing. Nothing is left to do where that was done piece by piece. */
void gw_op_arrived(gw_op *op, gw_lane *lane, uint64_t index, const void *data, uint64_t bytes) {
    gw_landing *landing = &lane->land[index % GW_PIPELINE];
    landing->bytes = bytes;
    landing->arrived = true;
    gw_op_mark(op);
    if (landing->acted || data == landing->at || landing->bytes == 0) return;
    gw_action step;
    gw_plan_step(&op->plan, (uint32_t)(lane - op->lanes), index, &step);
    if (index == lane->done && gw_op_holds(op, step.ready)) {
        act_on(op, &step, data, landing->bytes);
        landing->acted = true;
    } else {
        gw_copy(landing->at, data, landing->bytes);
    }
}

/* Sends. */

static bool send_steps(gw_op *op, uint32_t stream) {
    gw_lane *lane = &op->lanes[stream];
    bool moved = false;
    while (lane->posted < lane->stream.steps && lane->posted - lane->done < GW_PIPELINE) {
        gw_action step;
        gw_plan_step(&op->plan, stream, lane->posted, &step);
        if (!gw_op_holds(op, step.ready)) break;
        if (!gw_flow_send(op, lane, address(op, &step.src), step_bytes(op, &step))) break;
        moved = true;
    }
    return moved;
}

void gw_op_sent(gw_op *op, gw_packet *packet) {
    gw_lane *lane = &op->lanes[(size_t)((uint8_t *)packet - (uint8_t *)op->lanes) / sizeof *lane];
    gw_op_mark(op);
    if (packet == &lane->grant_packet) {
        lane->grant_queued = false;
        return;
    }
    if (op->engine->trace) gw_tracing_sent(op, lane, (int)(packet - lane->packet));
    lane->left[packet - lane->packet] = true;
    while (lane->done < lane->posted && lane->left[lane->done % GW_PIPELINE]) {
        lane->left[lane->done % GW_PIPELINE] = false;
        complete(op, lane);
    }
}

/* Local work. */

static void fold_merged(gw_op *op, const gw_action *step, const void *const *sources) {
    uint8_t *dst = address(op, &step->dst);
    size_t bytes = step->dst.count * op->raw;
    const void *own = sources[op->team->rank];
    if (dst != own) memmove(dst, own, bytes);
    for (int r = 0; r < op->team->size; r++)
        if (r != op->team->rank) op->spec.merge(op->spec.merge_ctx, dst, sources[r], bytes);
}

static void fold(gw_op *op, const gw_action *step) {
    const void **sources = op->team->sources;
    size_t base = step->fold_base;
    gw_time begun = op->engine->trace ? gw_trace_now(op->engine->trace) : 0;
    for (int r = 0; r < op->team->size; r++) {
        if (r == op->team->rank) {
            sources[r] = address(op, &step->src);
        } else {
            sources[r] = op->work + base * op->wide;
            base += step->fold_stride;
        }
    }
    if (op->spec.merge) fold_merged(op, step, sources);
    else gw_reduce_many(op->reduction, address(op, &step->dst), sources, op->team->size, step->dst.count);
    if (op->engine->trace)
        gw_tracing_reduced(op, step->dst.count * op->raw * ((size_t)op->team->size - 1), begun);
}

/* Board tasks are matched by their order, so every rank starts them in the order of the operations. */
static bool board_turn(const gw_op *op) {
    for (const gw_op *earlier = op->engine->active; earlier != op; earlier = earlier->next)
        if (earlier->team == op->team && earlier->board_started < earlier->board_steps) return false;
    return gw_board_free(op->team->board);
}

/* A reduce-scatter's own part is given as a slot of its own; boards address it like the input. */
static void *board_out(const gw_op *op, const gw_action *step) {
    uint8_t *out = address(op, &step->dst);
    if (!out || step->task != GW_BOARD_REDUCE_SCATTER) return out;
    size_t offset = 0, length;
    int local = gw_topology_local_rank(&op->team->topology, op->team->rank);
    if (local < step->lanes) gw_part(step->src.count, step->lanes, local, &offset, &length);
    return (void *)((uintptr_t)out - offset * (step->dst_wide ? op->wide : op->raw));
}

gw_board_op gw_op_board_task(const gw_action *step, const gw_signature *signature, gw_reduction reduction) {
    gw_board_op task = {.task = step->task, .reduction = reduction,
                        .count = step->task == GW_BOARD_REDUCE_SCATTER ? step->src.count : step->dst.count,
                        .lanes = step->lanes, .root = step->board_root, .dst_wide = step->dst_wide};
    gw_signature_pack(signature, task.signature);
    return task;
}

void gw_op_board_begun(gw_op *op, gw_lane *lane) {
    op->board_started++;
    lane->board_ticket = ++op->team->board_tickets;
    lane->board_running = true;
}

static void start_board(gw_op *op, gw_lane *lane, const gw_action *step) {
    gw_board_op task = gw_op_board_task(step, &op->signature, op->reduction);
    task.number = op->number;
    task.in = address(op, &step->src);
    task.out = board_out(op, step);
    gw_board_start(op->team->board, &task);
    if (op->engine->trace) lane->board_at = gw_trace_now(op->engine->trace);
    gw_op_board_begun(op, lane);
}

static int another_on_host(const gw_team *team) {
    int rank = 0;
    while (rank == team->rank || team->host_of[rank] != team->host_of[team->rank]) rank++;
    return team->members[rank];
}

/* A member that gave up is the echo of a failure whose cause the control plane tells; like a lost link. */
void gw_op_report_board(gw_op *op, const gw_error *error) {
    if (error->status == GW_MISMATCH) {
        uint64_t packed[2] = {0};
        int rank = error->rank == op->engine->config.rank ? another_on_host(op->team) : error->rank;
        gw_board_signature(op->team->board, rank, packed);
        gw_flow_board_mismatch(op, rank, packed);
    } else {
        gw_engine_report(op->engine, error->status == GW_ABORTED ? GW_PEER_LOST : error->status, error->rank, "%s",
                         error->text);
    }
}

/* True when the board has finished this step. */
static bool run_board(gw_op *op, gw_lane *lane, const gw_action *step) {
    gw_team *team = op->team;
    if (!lane->board_running) {
        if (!board_turn(op)) return false;
        start_board(op, lane, step);
    }
    uint64_t completed = 0;
    bool moved = false;
    gw_error error = {.rank = -1};
    if (gw_board_poll(team->board, &completed, &moved, &error) != GW_OK) {
        gw_op_report_board(op, &error);
        return false;
    }
    op->engine->board_moved |= moved;
    if (moved) op->progress_at = op->engine->now;
    lane->board_running = completed < lane->board_ticket;
    if (op->engine->trace && !lane->board_running) gw_tracing_board(op, lane, step);
    return !lane->board_running;
}

static bool is_native(const gw_op *op) { return op->plan.builder == &gw_plan_native; }

/* The library matches calls by their order, so they are made in the order of the operations. */
static bool native_turn(const gw_op *op) {
    for (const gw_op *earlier = op->engine->active; earlier != op; earlier = earlier->next)
        if (earlier->team == op->team && earlier->native_due) return false;
    return true;
}

/* True when the library has finished this step. */
static bool run_native(gw_op *op, gw_lane *lane, const gw_action *step) {
    gw_transport *transport = op->team->native;
    const gw_native *native = transport->ops->native;
    gw_error error = {.rank = -1};
    if (!lane->native) {
        if (!native_turn(op)) return false;
        op->native_due--;
        lane->native = native->start(transport, address(op, &step->src), address(op, &step->dst), step->dst.count,
                                     op->spec.dtype, op->spec.redop, &error);
    }
    bool done = lane->native && native->done(transport, lane->native, &error);
    if (done) lane->native = NULL;
    if (error.status) gw_engine_report(op->engine, error.status, -1, "%s", error.text);
    return done && !error.status;
}

static bool run_local(gw_op *op, uint32_t stream) {
    gw_lane *lane = &op->lanes[stream];
    bool moved = false;
    while (lane->done < lane->stream.steps) {
        gw_action step;
        gw_plan_step(&op->plan, stream, lane->done, &step);
        if (!gw_op_holds(op, step.ready)) break;
        if (step.kind == GW_STEP_COPY) {
            uint8_t *dst = address(op, &step.dst);
            const uint8_t *src = address(op, &step.src);
            uint64_t bytes = slot_bytes(op, &step.src);
            bool apart = (uintptr_t)dst - (uintptr_t)src >= bytes && (uintptr_t)src - (uintptr_t)dst >= bytes;
            if (apart && bytes) gw_copy(dst, src, bytes);
            else if (dst != src) memmove(dst, src, bytes);
        } else if (step.kind == GW_STEP_FOLD) {
            fold(op, &step);
        } else if (step.kind == GW_STEP_NATIVE) {
            if (!run_native(op, lane, &step)) break;
        } else if (!run_board(op, lane, &step)) {
            break;
        }
        complete(op, lane);
        moved = true;
    }
    return moved;
}

static bool advance_lane(gw_op *op, uint32_t stream) {
    switch (op->lanes[stream].stream.flow) {
    case GW_FLOW_RECV: {
        bool posted = post_receives(op, stream);
        bool acted = act_on_receives(op, stream);
        return posted || acted;
    }
    case GW_FLOW_SEND: return send_steps(op, stream);
    case GW_FLOW_LOCAL: return run_local(op, stream);
    }
    return false;
}

/* A board is at work: it has no events of its own, so it is polled; so is a library under a transport. */
static bool on_board(const gw_op *op) { return op->board_steps > 0; }

/* Is all that this lane still has to act on here already? */
static bool all_here(const gw_op *op, const gw_lane *lane) {
    uint64_t here = gw_flow_stashed(op, lane);
    for (uint64_t i = lane->done; i < lane->posted; i++) here += lane->land[i % GW_PIPELINE].arrived;
    return here == lane->stream.steps - lane->done;
}

/* A peer whose link is gone, and from or to which this operation still needs something; -1: none. */
static int needs_lost_peer(const gw_op *op) {
    for (uint32_t s = 0; s < op->plan.streams; s++) {
        const gw_lane *lane = &op->lanes[s];
        if (lane->peer < 0 || !op->engine->peers[lane->peer].lost || lane->done == lane->stream.steps) continue;
        if (lane->stream.flow == GW_FLOW_RECV && all_here(op, lane)) continue;
        return lane->peer;
    }
    /* A rank of this host that has left the board's last task for this operation has done all that it was needed for.
     */
    for (int r = 0; on_board(op) && r < op->team->size; r++) {
        int rank = op->team->members[r];
        if (op->engine->peers[rank].lost && gw_board_left(op->team->board, rank) < op->board_due) return rank;
    }
    for (int r = 0; is_native(op) && r < op->team->size; r++) /* one that left in order has done its part */
        if (op->engine->peers[op->team->members[r]].died) return op->team->members[r];
    return -1;
}

static void finish(gw_op *op, gw_status status) {
    gw_engine *engine = op->engine;
    gw_op **at = &engine->active;
    while (*at != op) at = &(*at)->next;
    /* The one behind it may have had to wait for this one: its own time begins now. */
    if (at == &engine->active && op->next && op->next->progress_at < engine->now) op->next->progress_at = engine->now;
    *at = op->next;
    op->next = NULL;
    op->active = false;
    op->done = true;
    op->status = status;
    if (engine->trace) gw_tracing_ended(op);
    engine->pending--;
    if (op->pair_peer < 0) op->team->history[op->number % GW_HISTORY] = op->signature;
}

static bool is_complete(const gw_op *op) {
    for (uint32_t s = 0; s < op->plan.streams; s++)
        if (op->lanes[s].done < op->lanes[s].stream.steps || op->lanes[s].grant_queued) return false;
    return true;
}

bool gw_op_advance(gw_op *op) {
    bool any = false, moved = true;
    while (moved && !op->engine->halted) {
        op->dirty = false;
        moved = false;
        /* Landings first: a grant that waits behind data to the same rank holds up what comes from there. */
        for (uint32_t s = 0; s < op->plan.streams; s++)
            if (op->lanes[s].stream.flow == GW_FLOW_RECV) moved |= post_receives(op, s);
        for (uint32_t s = 0; s < op->plan.streams; s++) moved |= advance_lane(op, s);
        any |= moved;
    }
    if (op->engine->halted) return any;
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

/* Polling. */

bool gw_engine_poll(gw_engine *engine, gw_time now) {
    bool any = false;
    engine->now = now;
    engine->board_moved = false;
    for (int t = 0; t < engine->transport_count; t++)
        any |= engine->transports[t]->ops->poll(engine->transports[t], now);
    for (gw_op *op = engine->active, *next; op && !engine->halted; op = next) {
        next = op->next;
        if (op->dirty || is_native(op) || on_board(op)) any |= gw_op_advance(op);
    }
    if (!engine->halted) gw_flow_settle(engine);
    if (engine->active && !engine->halted) gw_op_check_deadline(engine->active);
    return any || engine->board_moved;
}
